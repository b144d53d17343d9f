/** The terminals that this page has open: each lives on while another tab is looked at. */

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
import { holders } from "../lib/actions";
import { api, at, client } from "../lib/api";
import { hear } from "../lib/events";
import { dark } from "../lib/theme";
import { colours, MONO } from "./theme";

/** How it is with one, in words for people. */
export type Shown =
  | { kind: "connecting" }
  | { kind: "live" }
  | { kind: "behind" }
  | { kind: "back"; next: number; first: boolean }
  | { kind: "ended"; code: number; signal: string | undefined }
  | { kind: "refused"; message: string; hint: string };

/** One open terminal. */
export interface Opened {
  sandbox: string;
  session: string;
  mode: "edit" | "view";
  /** What it is drawn in; put where it is looked at. */
  host: HTMLDivElement;
  xterm: Xterm;
  search: SearchAddon;
  addon: IsoletAddon;
  state: Signal<Shown>;
  title: Signal<string>;
  size: Signal<{ cols: number; rows: number }>;
  clients: Signal<readonly TerminalClient[]>;
  /** This client's number among them. */
  me: Signal<number>;
  /** Its size is another client's. */
  foreign: Signal<boolean>;
  fit: () => void;
  dispose: () => void;
}

/** More at once are refused: each costs a connection and a screen. */
const OPENED_MAX = 24;
const SCROLLBACK_LINES = 10_000;
const TITLE_CHARS_MAX = 120;
/** How this browser is called among a terminal's clients. */
const ME = "console";

/** All of them, oldest first. */
export const opened = signal<readonly Opened[]>([]);

/** The one of a session; opened where there is none. `undefined`: too many are. */
export function open(sandbox: string, session: string, mode: "edit" | "view" = "edit"): Opened | undefined {
  const there = opened.peek().find((one) => one.sandbox === sandbox && one.session === session);
  if (there) return there;
  if (opened.peek().length >= OPENED_MAX) return undefined;
  const made = make(sandbox, session, mode);
  opened.value = [...opened.peek(), made];
  return made;
}

/** Leaves a terminal; it runs on. */
export function close(one: Opened): void {
  opened.value = opened.peek().filter((other) => other !== one);
  one.dispose();
}

/** Attaches anew, to look only or to type. */
export function attachAs(one: Opened, mode: "edit" | "view"): void {
  one.mode = mode;
  connect(one);
}

/** Attaches anew: a terminal that has ended begins afresh. */
export function connect(one: Opened): void {
  const { sandbox, session } = one;
  one.state.value = { kind: "connecting" };
  const terminal = one.addon.connect((size) =>
    openTerminal(() => address(sandbox, session, one.mode), {
      ...size,
      mode: one.mode,
      name: ME,
      reconnect: { tries: 10_000, firstMs: 300, mostMs: 8000 },
    }),
  );
  listen(one, terminal);
}

/** Taken anew for each connection: it opens this terminal, once. */
async function address(sandbox: string, session: string, mode: "edit" | "view"): Promise<string> {
  const json = { sandbox, session, use: "terminal", mode };
  const { ticket } = await api().json<{ ticket: string }>("/v1/tickets", { json });
  const query = new URLSearchParams({ session, ticket });
  return `${location.origin}${at(sandbox, "terminal")}?${query}`;
}

function listen(one: Opened, terminal: Terminal): void {
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
    const typing = clients.find((one) => one.typing);
    one.foreign.value = typing !== undefined && typing.client !== one.me.peek();
  });
  terminal.on("exit", ({ code, signal }) => {
    ended = true;
    one.state.value = { kind: "ended", code, signal };
  });
  terminal.on("error", (error) => {
    if (terminal.state === "connected") return;
    // A key that may only read may look.
    if (error.code === "read_only" && one.mode === "edit") return void queueMicrotask(() => attachAs(one, "view"));
    if (!ended) one.state.value = { kind: "refused", message: error.message, hint: error.hint };
  });
  terminal.on("state", (state, next) => {
    if (ended || one.state.peek().kind === "refused") return;
    if (state === "connected") one.state.value = { kind: "live" };
    else if (state === "paused") one.state.value = { kind: "behind" };
    else if (next) one.state.value = { kind: "back", next: Date.now() + next.delayMs, first };
    else if (state === "connecting") one.state.value = { kind: "connecting" };
    if (state !== "connected" && state !== "paused") one.clients.value = [];
  });
}

function make(sandbox: string, session: string, mode: "edit" | "view"): Opened {
  const host = document.createElement("div");
  host.className = "screen";
  const xterm = new Xterm({
    allowProposedApi: true,
    cursorBlink: !matchMedia("(prefers-reduced-motion: reduce)").matches,
    fontFamily: MONO,
    fontSize: letters(),
    lineHeight: 1.15,
    scrollback: SCROLLBACK_LINES,
    theme: colours(dark.peek()),
    // Black on a dark green is what `ls` makes of some directories.
    minimumContrastRatio: 3,
    macOptionIsMeta: true,
    rightClickSelectsWord: false,
    // OSC 8: an address that a program names. Only what leads to a page, and only on a click.
    linkHandler: { activate: (_event, address) => visit(address), allowNonHttpProtocols: false },
  });
  const fit = new FitAddon();
  const search = new SearchAddon({ highlightLimit: 500 });
  const addon = new IsoletAddon({ fit: () => fit.proposeDimensions() });
  for (const one of [fit, search, new Unicode11Addon(), new WebLinksAddon((_event, address) => visit(address)), addon]) {
    xterm.loadAddon(one);
  }
  xterm.unicode.activeVersion = "11";
  // OSC 52: a program neither reads nor writes the clipboard.
  xterm.parser.registerOscHandler(52, () => true);
  const one: Opened = {
    sandbox,
    session,
    mode,
    host,
    xterm,
    search,
    addon,
    state: signal<Shown>({ kind: "connecting" }),
    title: signal(""),
    size: signal({ cols: 80, rows: 24 }),
    clients: signal<readonly TerminalClient[]>([]),
    me: signal(0),
    foreign: signal(false),
    fit: () => undefined,
    dispose: () => undefined,
  };
  xterm.onTitleChange((title) => (one.title.value = plain(title)));
  const paint = effect(() => {
    xterm.options.theme = colours(dark.value);
  });
  let drawn = false;
  one.fit = () => {
    if (!host.isConnected || host.clientWidth === 0) return;
    if (!drawn) {
      drawn = true;
      xterm.open(host);
      accelerate(xterm);
      connect(one);
    } else {
      if (xterm.options.fontSize !== letters()) xterm.options.fontSize = letters();
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

/** As large as the rest of the page, in px. */
function letters(): number {
  const page = parseFloat(getComputedStyle(document.documentElement).fontSize);
  return Math.round(innerWidth < 640 ? page * 0.86 : page * 0.97);
}

/** Draws by WebGL; where there is none, or it is lost, as before by elements. */
function accelerate(xterm: Xterm): void {
  try {
    const webgl = new WebglAddon();
    webgl.onContextLoss(() => webgl.dispose());
    xterm.loadAddon(webgl);
  } catch {
    // No WebGL here: the other way of drawing is in place.
  }
}

/** A title as text: no controls, and no character that turns the direction of what follows. */
export function plain(title: string): string {
  return title.replace(/[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, "").slice(0, TITLE_CHARS_MAX);
}

/** Opens a page that stood in a terminal: it learns nothing of this one. */
export function visit(address: string): void {
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
  for (const one of opened.peek()) if (one.sandbox === sandbox) close(one);
}

// What a destroyed sandbox's terminals would do is to make it anew, and a sleeping one's to wake it.
hear(({ kind, sandbox }) => {
  if (kind === "destroyed" || kind === "sleeping") closeAll(sandbox);
});
holders.add(closeAll);
client.subscribe((now) => {
  if (!now) for (const one of opened.peek()) close(one);
});
