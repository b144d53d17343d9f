/** Open terminals of this page. They stay attached while another tab is shown. */

import { IsoletAddon } from "@isolet/sdk/xterm";
import { openTerminal, type Terminal, type TerminalClient } from "@isolet/sdk";
import { effect, signal, type Signal } from "@preact/signals";
import { FitAddon } from "@xterm/addon-fit";
import { SearchAddon } from "@xterm/addon-search";
import { Unicode11Addon } from "@xterm/addon-unicode11";
import { WebLinksAddon } from "@xterm/addon-web-links";
import { WebglAddon } from "@xterm/addon-webgl";
import "@xterm/xterm/css/xterm.css";
import "./strict";
import { Terminal as Xterm } from "@xterm/xterm";
import { sleepHandlers } from "../lib/actions";
import { api, at, client } from "../lib/api";
import { onEvent } from "../lib/events";
import { dark } from "../lib/theme";
import { colours, CONTRAST_MIN, MONO } from "./theme";

/** State of a terminal, for display. */
export type TerminalStatus =
  | { kind: "connecting" }
  | { kind: "live" }
  | { kind: "behind" }
  | { kind: "back"; next: number; first: boolean }
  | { kind: "ended"; code: number; signal: string | undefined }
  | { kind: "refused"; message: string; hint: string };

/** An open terminal. */
export interface OpenTerminal {
  sandbox: string;
  session: string;
  mode: "edit" | "view";
  /** Element that contains the screen; moved into the page while it is shown. */
  host: HTMLDivElement;
  xterm: Xterm;
  search: SearchAddon;
  addon: IsoletAddon;
  state: Signal<TerminalStatus>;
  title: Signal<string>;
  size: Signal<{ cols: number; rows: number }>;
  clients: Signal<readonly TerminalClient[]>;
  /** Number of this client. */
  me: Signal<number>;
  /** The terminal has the size of another client's window. */
  otherClientsSize: Signal<boolean>;
  /** The user typed while there was no connection. That input is not sent. */
  dropped: Signal<boolean>;
  fit: () => void;
  dispose: () => void;
}

/** Limit on open terminals: each needs a connection and a screen. */
const OPENED_MAX = 24;
const SCROLLBACK_LINES = 10_000;
const TITLE_CHARS_MAX = 120;
/** Name of this client among a terminal's clients. */
const ME = "console";

/** All open terminals, oldest first. */
export const openTerminals = signal<readonly OpenTerminal[]>([]);

/** The terminal of a session; attached if needed. `undefined` if too many are open. */
export function open(sandbox: string, session: string, mode: "edit" | "view" = "edit"): OpenTerminal | undefined {
  const existing = openTerminals.peek().find((one) => one.sandbox === sandbox && one.session === session);
  if (existing) return existing;
  if (openTerminals.peek().length >= OPENED_MAX) return undefined;
  const made = make(sandbox, session, mode);
  openTerminals.value = [...openTerminals.peek(), made];
  return made;
}

/** Detach from a terminal. It keeps running. */
export function close(one: OpenTerminal): void {
  openTerminals.value = openTerminals.peek().filter((other) => other !== one);
  one.dispose();
}

/** Attach again in another mode. */
export function attachAs(one: OpenTerminal, mode: "edit" | "view"): void {
  one.mode = mode;
  connect(one);
}

/** Attach. If the terminal has ended, this opens a new one. */
export function connect(one: OpenTerminal): void {
  const { sandbox, session } = one;
  one.state.value = { kind: "connecting" };
  const terminal = one.addon.connect((size) =>
    openTerminal(() => address(sandbox, session, one.mode), {
      ...size,
      mode: one.mode,
      name: ME,
      reconnect: { maxAttempts: 10_000, initialDelayMs: 300, maxDelayMs: 8000 },
    }),
  );
  listen(one, terminal);
}

/** Address with a new ticket, which opens one connection. */
async function address(sandbox: string, session: string, mode: "edit" | "view"): Promise<string> {
  const json = { sandbox, session, use: "terminal", mode };
  const { ticket } = await api().json<{ ticket: string }>("/v1/tickets", { json });
  const query = new URLSearchParams({ session, ticket });
  return `${location.origin}${at(sandbox, "terminal")}?${query}`;
}

function listen(one: OpenTerminal, terminal: Terminal): void {
  let ended = false;
  let first = true;
  terminal.on("attached", (attached) => {
    first = false;
    one.me.value = attached.client;
    one.size.value = { cols: attached.cols, rows: attached.rows };
  });
  terminal.on("size", (size) => (one.size.value = size));
  terminal.on("clients", (clients) => {
    one.clients.value = clients;
    const isTyping = clients.find((one) => one.typing);
    one.otherClientsSize.value = isTyping !== undefined && isTyping.client !== one.me.peek();
  });
  terminal.on("exit", ({ code, signal }) => {
    ended = true;
    one.state.value = { kind: "ended", code, signal };
  });
  terminal.on("error", (error) => {
    if (terminal.state === "connected") return;
    // A read-only key may attach in view mode.
    if (error.code === "read_only" && one.mode === "edit") return void queueMicrotask(() => attachAs(one, "view"));
    if (!ended) one.state.value = { kind: "refused", message: error.message, hint: error.hint };
  });
  terminal.on("state", (state, next) => {
    if (ended || one.state.peek().kind === "refused") return;
    if (state === "connected") {
      one.dropped.value = false;
      one.state.value = { kind: "live" };
    }
    else if (state === "paused") one.state.value = { kind: "behind" };
    else if (next) one.state.value = { kind: "back", next: Date.now() + next.delayMs, first };
    else if (state === "connecting") one.state.value = { kind: "connecting" };
    if (state !== "connected" && state !== "paused") one.clients.value = [];
  });
}

function make(sandbox: string, session: string, mode: "edit" | "view"): OpenTerminal {
  const host = document.createElement("div");
  host.className = "screen";
  const xterm = new Xterm({
    allowProposedApi: true,
    cursorBlink: !matchMedia("(prefers-reduced-motion: reduce)").matches,
    fontFamily: MONO,
    fontSize: fontSize(),
    lineHeight: 1.15,
    scrollback: SCROLLBACK_LINES,
    theme: colours(dark.peek()),
    minimumContrastRatio: CONTRAST_MIN,
    macOptionIsMeta: true,
    rightClickSelectsWord: false,
    // OSC 8 links of programs: only http(s), and only on a click.
    linkHandler: { activate: (_event, address) => openExternalLink(address), allowNonHttpProtocols: false },
  });
  const fit = new FitAddon();
  const search = new SearchAddon({ highlightLimit: 500 });
  const addon = new IsoletAddon({ fit: () => fit.proposeDimensions() });
  for (const one of [fit, search, new Unicode11Addon(), new WebLinksAddon((_event, address) => openExternalLink(address)), addon]) {
    xterm.loadAddon(one);
  }
  xterm.unicode.activeVersion = "11";
  // OSC 52: programs must not read or write the clipboard.
  xterm.parser.registerOscHandler(52, () => true);
  const one: OpenTerminal = {
    sandbox,
    session,
    mode,
    host,
    xterm,
    search,
    addon,
    state: signal<TerminalStatus>({ kind: "connecting" }),
    title: signal(""),
    size: signal({ cols: 80, rows: 24 }),
    clients: signal<readonly TerminalClient[]>([]),
    me: signal(0),
    otherClientsSize: signal(false),
    dropped: signal(false),
    fit: () => undefined,
    dispose: () => undefined,
  };
  xterm.onData((text) => {
    // Replies of xterm.js to programs begin with an escape character, as cursor keys do.
    if (one.state.peek().kind === "back" && !text.startsWith("\x1b")) one.dropped.value = true;
  });
  xterm.onTitleChange((title) => (one.title.value = sanitizeTitle(title)));
  const paint = effect(() => {
    xterm.options.theme = colours(dark.value);
  });
  let drawn = false;
  one.fit = () => {
    if (!host.isConnected || host.clientWidth === 0) return;
    if (!drawn) {
      drawn = true;
      xterm.open(host);
      enableWebgl(xterm);
      connect(one);
    } else {
      if (xterm.options.fontSize !== fontSize()) xterm.options.fontSize = fontSize();
      addon.fit();
    }
  };
  one.dispose = () => {
    paint();
    addon.disconnect();
    xterm.dispose();
    host.remove();
  };
  return one;
}

/** Font size in pixels, relative to that of the page. */
function fontSize(): number {
  const page = parseFloat(getComputedStyle(document.documentElement).fontSize);
  return Math.round(innerWidth < 640 ? page * 0.86 : page * 0.97);
}

/** Draw with WebGL if available; otherwise, and after a context loss, with DOM elements. */
function enableWebgl(xterm: Xterm): void {
  try {
    const webgl = new WebglAddon();
    webgl.onContextLoss(() => webgl.dispose());
    xterm.loadAddon(webgl);
  } catch {
    // Without WebGL, xterm.js draws with DOM elements.
  }
}

/** A title without control characters and characters that change the direction of text. */
export function sanitizeTitle(title: string): string {
  return title.replace(/[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, "").slice(0, TITLE_CHARS_MAX);
}

/** Open a link from a terminal in a new tab, without access to this page. */
export function openExternalLink(address: string): void {
  let url: URL;
  try {
    url = new URL(address);
  } catch {
    return;
  }
  if (url.protocol !== "http:" && url.protocol !== "https:") return;
  window.open(url.href, "_blank", "noopener,noreferrer");
}

function closeAll(sandbox: string): void {
  for (const one of openTerminals.peek()) if (one.sandbox === sandbox) close(one);
}

// Terminals that reconnect would recreate a destroyed sandbox and wake a sleeping one.
onEvent(({ kind, sandbox }) => {
  if (kind === "destroyed" || kind === "sleeping") closeAll(sandbox);
});
sleepHandlers.add(closeAll);
client.subscribe((now) => {
  if (!now) for (const one of openTerminals.peek()) close(one);
});
