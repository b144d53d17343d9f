/** Functions that tests call in the page: `kit.open`, `kit.dump` and others. */

import { Terminal as Xterm } from "@xterm/xterm";
import { getSandbox, Isolet, openShell, openTerminal } from "@isolet/sdk";
import { IsoletAddon } from "@isolet/sdk/xterm";
import { SandboxAddon } from "@cloudflare/sandbox/xterm";
import { dump } from "./buffer.js";

const shown = {};

function show(name, size) {
  const place = document.createElement("div");
  place.id = name;
  document.body.append(place);
  const xterm = new Xterm({ ...size, fontSize: 10, allowProposedApi: true, scrollback: 1000 });
  xterm.open(place);
  const one = { xterm, typed: [], states: [], errors: [], title: "", snapshots: 0, missed: 0, clients: [], exits: [] };
  xterm.onData((text) => one.typed.push(text));
  xterm.onTitleChange((title) => (one.title = title));
  shown[name] = one;
  return one;
}

/**
 * Open a terminal with our addon. `at`: `{ port, sandbox, session, mode }`; with `key` through the SDK,
 * otherwise with tickets from the test.
 */
function open(name, at, size, options = {}) {
  const one = show(name, size);
  one.window = size;
  const addon = new IsoletAddon({
    ...(options.unparsedMax ? { unparsedMax: options.unparsedMax } : {}),
    fit: () => one.window,
    onStateChange: (state, error) => (error ? one.errors.push(error.message) : one.states.push(state)),
  });
  one.xterm.loadAddon(addon);
  one.addon = addon;
  const given = { ...options.terminal, ...(at.mode ? { mode: at.mode } : {}) };
  const address = async () => {
    const ticket = await window.ticket({ sandbox: at.sandbox, session: at.session, mode: at.mode ?? "edit" });
    return `ws://127.0.0.1:${at.port}/v1/sandboxes/${at.sandbox}/terminal?session=${at.session}&ticket=${ticket}`;
  };
  one.connect = () => {
    one.terminal = addon.connect((window) => {
      if (!at.key) return openTerminal(address, { ...window, ...given });
      const client = new Isolet({ url: location.origin, apiKey: at.key });
      return getSandbox(client, at.sandbox).terminal({ ...window, sessionId: at.session, ...given });
    });
    one.terminal.on("snapshot", ({ missed }) => {
      one.snapshots++;
      one.missed += missed;
    });
    one.terminal.on("clients", (clients) => (one.clients = clients));
    one.terminal.on("exit", (exit) => one.exits.push(exit));
    one.terminal.on("data", (bytes, offset) => one.onOutput?.(bytes, offset));
  };
  one.connect();
}

/** A sandbox by key, in a page of the server's own origin. */
const sandbox = (at) => getSandbox(new Isolet({ url: location.origin, apiKey: at.key }), at.sandbox);

/** Open a shell with tickets. `at`: `{ port, sandbox }`. */
function shell(at, options) {
  return openShell(async () => {
    const ticket = await window.ticket({ sandbox: at.sandbox, use: "shell" });
    return `ws://127.0.0.1:${at.port}/v1/sandboxes/${at.sandbox}/shell?ticket=${ticket}`;
  }, options);
}

/** Collect output with its offsets, for comparison with what the program wrote. */
function collectOutput(name) {
  const one = shown[name];
  one.collected = { at: undefined, size: 0, gaps: [], digest: [] };
  one.onOutput = (bytes, offset) => {
    const { collected } = one;
    collected.at ??= offset;
    const next = collected.at + collected.size;
    if (offset !== next) collected.gaps.push([next, offset]);
    collected.size += bytes.length;
    collected.digest.push(bytes.slice());
  };
}

/** The collected output, as latin-1 text. */
function collectedOutput(name) {
  const { at, size, gaps, digest } = shown[name].collected;
  let text = "";
  for (const part of digest) for (const byte of part) text += String.fromCharCode(byte);
  return { at, size, gaps, text };
}

/**
 * Open a terminal with Cloudflare's unmodified addon. It requests addresses synchronously, so tickets are
 * created in advance.
 */
async function cloudflare(name, at, size) {
  const one = show(name, size);
  const take = () => window.ticket({ sandbox: at.sandbox, session: at.session, mode: "edit" });
  const tickets = await Promise.all(Array.from({ length: 20 }, take));
  one.origins = [];
  const addon = new SandboxAddon({
    getWebSocketUrl: ({ sandboxId, sessionId, origin }) => {
      one.origins.push(origin);
      const { cols, rows } = one.xterm;
      return `ws://127.0.0.1:${at.port}/v1/sandboxes/${sandboxId}/terminal?session=${sessionId}&cols=${cols}&rows=${rows}&ticket=${tickets.pop()}`;
    },
    onStateChange: (state, error) => (error ? one.errors.push(error.message) : one.states.push(state)),
  });
  one.xterm.loadAddon(addon);
  one.addon = addon;
  addon.connect({ sandboxId: at.sandbox, sessionId: at.session });
}

/** Text of the visible screen. */
function screen(name) {
  const { xterm } = shown[name];
  const { active } = xterm.buffer;
  const rows = Array.from({ length: xterm.rows }, (_, y) => active.getLine(active.baseY + y)?.translateToString(true) ?? "");
  return rows.join("\n").trimEnd();
}

/** Text of all lines, with scrollback. */
function all(name) {
  const { active } = shown[name].xterm.buffer;
  return Array.from({ length: active.length }, (_, y) => active.getLine(y)?.translateToString(true) ?? "").join("\n");
}

/** Remove a terminal from the page. */
function close(name) {
  shown[name].addon.dispose();
  shown[name].xterm.dispose();
  document.getElementById(name).remove();
  delete shown[name];
}

window.kit = {
  shown,
  open,
  close,
  cloudflare,
  shell,
  sandbox,
  collectOutput,
  collectedOutput,
  screen,
  all,
  dump: (name) => dump(shown[name].xterm, shown[name].title),
  /** Resolves when everything that was written is parsed. */
  parsed: (name) => new Promise((done) => shown[name].xterm.write("", () => setTimeout(done))),
};
