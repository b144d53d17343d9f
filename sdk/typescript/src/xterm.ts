/** An addon of xterm.js that shows a terminal: `@isolet/sdk/xterm`. */

import type { IDisposable, ITerminalAddon, Terminal as Xterm } from "@xterm/xterm";
import { bounded } from "./counts.js";
import type { TerminalAttached, TerminalSize } from "./frames.js";
import { Ordered } from "./ordered.js";
import type { Terminal } from "./terminal.js";
import type { TerminalState } from "./terminal-options.js";

/** Gives a terminal for a window: `(size) => sandbox.terminal(size)`. */
export type Open = (size: TerminalSize) => Terminal;

/** How terminals are shown. */
export interface AddonOptions {
  /** What {@link IsoletAddon.connect} attaches to when it is not told. */
  open?: Open;
  /** The size that the window has room for: `() => fitAddon.proposeDimensions()`. */
  fit?: () => TerminalSize | undefined;
  /** Output that xterm.js has not parsed yet, in bytes, beyond which nothing more is taken from the
   *  server until it has; 1 MiB unless told. */
  unparsedMax?: number;
  /** Told at each change of the connection's state; `error`: what was refused, or why it ended. */
  onStateChange?: (state: TerminalState, error?: Error) => void;
}

/** What xterm.js answers to questions of programs, and its reports of focus; keys that are like them
 *  are no more than a key lost in the moment of a redraw. */
const ANSWER = /^\x1b(\[[?>=<]?[\d;:]*\$?[cnRtuyxIO]$|[\]P_^])/;

/** A paste as programs know it from typing, by the marks around it. */
const PASTE = /^\x1b\[200~([^]*)\x1b\[201~$/;

/** What is pasted cannot end its own paste: what came behind would be taken for typed. */
function pasted(text: string): string {
  const [, inside] = PASTE.exec(text) ?? [];
  if (inside === undefined) return text;
  let clean = inside;
  // Taking one away may put together another.
  for (let before = ""; before !== clean; ) {
    before = clean;
    clean = clean.replace(/\x1b\[20[01]~/g, "");
  }
  return `\x1b[200~${clean}\x1b[201~`;
}

/**
 * Shows a terminal in xterm.js. It takes up a lost connection by offset, so that nothing flickers;
 * draws the terminal in the size of the client that typed last; and takes no more than the page can
 * parse.
 */
export class IsoletAddon implements ITerminalAddon {
  readonly #options: AddonOptions;
  #xterm: Xterm | undefined;
  #terminal: Terminal | undefined;
  #ordered: Ordered | undefined;
  // Of this connection and of this page; ended apart.
  #following: (() => void)[] = [];
  #always: IDisposable[] = [];
  #release: (() => void) | undefined;
  // The window's own size; the terminal may have another's.
  #window: TerminalSize = { cols: 80, rows: 24 };
  // Drawing what was before: xterm.js answers questions in it, which nobody asks.
  #quiet = false;
  #resizing = false;

  constructor(options: AddonOptions = {}) {
    this.#options = options;
  }

  /** Called by `xterm.loadAddon`. */
  activate(xterm: Xterm): void {
    this.#xterm = xterm;
    this.#window = { cols: xterm.cols, rows: xterm.rows };
    this.#always = [
      xterm.onData((text) => this.#typed(text)),
      xterm.onBinary((text) => this.#typed(Uint8Array.from(text, (char) => char.charCodeAt(0)))),
      xterm.onResize((size) => this.#resized(size)),
      ...bounded(xterm),
    ];
  }

  /** Called by xterm.js: leaves the terminal, which runs on. */
  dispose(): void {
    this.disconnect();
    for (const item of this.#always.splice(0)) item.dispose();
    this.#xterm = undefined;
  }

  /** What is shown. */
  get terminal(): Terminal | undefined {
    return this.#terminal;
  }

  /** How it is with the connection; `closed` before the first. */
  get state(): TerminalState {
    return this.#terminal?.state ?? "closed";
  }

  /** Attaches, and leaves what was shown before. Listen at what this returns. */
  connect(open: Open | undefined = this.#options.open): Terminal {
    const xterm = this.#xterm;
    if (!xterm) throw new Error("load the addon into an xterm.js terminal first");
    if (!open) throw new Error("say what to open: connect((size) => sandbox.terminal(size))");
    this.disconnect();
    this.#measure();
    const terminal = open(this.#window);
    const ordered = new Ordered(xterm, (unparsed) => this.#took(unparsed));
    this.#terminal = terminal;
    this.#ordered = ordered;
    xterm.options.disableStdin = terminal.mode === "view";
    const { unparsedMax = 1024 * 1024, onStateChange } = this.#options;
    this.#following = [
      terminal.on("attached", (attached) => this.#attached(attached, attached.same)),
      terminal.on("size", (size) => this.#follow(size)),
      terminal.on("snapshot", ({ bytes }) => this.#draw(bytes)),
      terminal.on("data", (bytes) => {
        ordered.write(bytes);
        if (ordered.unparsed > unparsedMax) this.#release ??= terminal.hold();
      }),
      terminal.on("ready", () => ordered.then(() => void (this.#quiet = false))),
      terminal.on("state", (state) => onStateChange?.(state)),
      terminal.on("error", (error) => onStateChange?.(terminal.state, error)),
    ];
    return terminal;
  }

  /** Leaves the terminal, which runs on; what is shown stays. */
  disconnect(): void {
    this.#release = undefined;
    this.#ordered?.clear();
    this.#terminal?.close();
    for (const off of this.#following.splice(0)) off();
    this.#terminal = undefined;
    this.#ordered = undefined;
    this.#quiet = false;
  }

  /** The window's size has changed: takes what `fit` says. The terminal gets it when nobody else
   *  typed since. */
  fit(): void {
    this.#measure();
    const { cols, rows } = this.#window;
    if (this.#terminal && this.state !== "closed" && this.#terminal.mode === "edit") {
      this.#terminal.resize(cols, rows);
    } else if (this.state === "closed") this.#resize(this.#window);
  }

  #measure(): void {
    const size = this.#options.fit?.();
    if (size && size.cols > 0 && size.rows > 0) this.#window = { cols: size.cols, rows: size.rows };
  }

  #typed(data: string | Uint8Array): void {
    const terminal = this.#terminal;
    if (terminal?.state !== "connected" || terminal.mode === "view") return;
    if (this.#quiet && typeof data === "string" && ANSWER.test(data)) return;
    try {
      terminal.write(typeof data === "string" ? pasted(data) : data);
    } catch (error) {
      this.#options.onStateChange?.(terminal.state, error as Error);
    }
  }

  // Not by us: the page fits its terminal by itself. Where somebody else's size is shown it goes
  // back to that; the server is told either way, and gives this size once this client types.
  #resized(size: TerminalSize): void {
    if (this.#resizing) return;
    this.#window = { cols: size.cols, rows: size.rows };
    const terminal = this.#terminal;
    if (!terminal || terminal.state === "closed") return;
    if (terminal.mode === "edit") terminal.resize(size.cols, size.rows);
    const me = terminal.attached?.client;
    const others = terminal.clients.some(({ client, typing }) => typing && client !== me);
    if (terminal.attached && (others || terminal.mode === "view")) this.#follow(terminal.attached);
  }

  #attached(attached: TerminalAttached, same: boolean): void {
    this.#ordered?.then(() => {
      this.#quiet = true;
      // Another terminal than what is shown, and no snapshot comes of one that is new.
      if (!same) this.#xterm?.reset();
    });
    this.#follow(attached);
  }

  #follow({ cols, rows }: TerminalSize): void {
    this.#ordered?.then(() => this.#resize({ cols, rows }));
  }

  #resize({ cols, rows }: TerminalSize): void {
    const xterm = this.#xterm;
    if (!xterm || (xterm.cols === cols && xterm.rows === rows)) return;
    this.#resizing = true;
    try {
      xterm.resize(cols, rows);
    } finally {
      this.#resizing = false;
    }
  }

  #draw(bytes: Uint8Array): void {
    const ordered = this.#ordered;
    let before = false;
    ordered?.then(() => {
      before = this.#quiet;
      this.#quiet = true;
    });
    ordered?.write(bytes);
    ordered?.then(() => void (this.#quiet = before));
  }

  #took(unparsed: number): void {
    if (unparsed > 64 * 1024 || !this.#release) return;
    const release = this.#release;
    this.#release = undefined;
    release();
  }
}
