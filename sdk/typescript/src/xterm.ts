/** Addon for xterm.js that shows a terminal: `@isolet/sdk/xterm`. */

import type { IDisposable, ITerminalAddon, Terminal as Xterm } from "@xterm/xterm";
import { limitCsiCounts } from "./csi-limits.js";
import type { TerminalAttached, TerminalSize } from "./frames.js";
import { WriteQueue } from "./write-queue.js";
import type { Terminal } from "./terminal.js";
import type { TerminalState } from "./terminal-options.js";

/** Opens a terminal for a window size: `(size) => sandbox.terminal(size)`. */
export type Open = (size: TerminalSize) => Terminal;

/** Options of the addon. */
export interface AddonOptions {
  /** Default argument of {@link IsoletAddon.connect}. */
  open?: Open;
  /** Returns the size that fits the window: `() => fitAddon.proposeDimensions()`. */
  fit?: () => TerminalSize | undefined;
  /**
   * Limit on output that xterm.js has not parsed yet, in bytes; the terminal is paused beyond it. 1 MiB by
   * default.
   */
  unparsedMax?: number;
  /**
   * Called when the state of the connection changes. `error`: why a request was refused or the connection
   * ended.
   */
  onStateChange?: (state: TerminalState, error?: Error) => void;
}

/**
 * Replies of xterm.js to queries of programs, and focus reports. A key with the same bytes is lost only if it
 * is pressed during a redraw.
 */
const TERMINAL_REPLY = /^\x1b(\[[?>=<]?[\d;:]*\$?[cnRtuyxIO]$|[\]P_^])/;

/** A bracketed paste. */
const PASTE = /^\x1b\[200~([^]*)\x1b\[201~$/;

/** Remove bracketed-paste markers from pasted text: text after an end marker would be taken for typed input. */
function sanitizePaste(text: string): string {
  const [, inside] = PASTE.exec(text) ?? [];
  if (inside === undefined) return text;
  let clean = inside;
  // Removing one marker may form another.
  for (let before = ""; before !== clean; ) {
    before = clean;
    clean = clean.replace(/\x1b\[20[01]~/g, "");
  }
  return `\x1b[200~${clean}\x1b[201~`;
}

/**
 * Shows a terminal in xterm.js. After a lost connection it continues at the same byte without flicker. It
 * draws the terminal in the size of the client that typed last, and accepts no more output than the page can
 * parse.
 *
 * @example
 * ```ts
 * const addon = new IsoletAddon({ fit: () => fitAddon.proposeDimensions() });
 * xterm.loadAddon(addon);
 * addon.connect((size) => sandbox.terminal(size));
 * ```
 */
export class IsoletAddon implements ITerminalAddon {
  readonly #options: AddonOptions;
  #xterm: Xterm | undefined;
  #terminal: Terminal | undefined;
  #writes: WriteQueue | undefined;
  // Subscriptions of the current connection; the disposables below live as long as the addon.
  #subscriptions: (() => void)[] = [];
  #disposables: IDisposable[] = [];
  #release: (() => void) | undefined;
  // Size of the window; the terminal may have another client's size.
  #window: TerminalSize = { cols: 80, rows: 24 };
  // While old output is redrawn, replies of xterm.js to queries in it must not be sent.
  #replaying = false;
  #resizing = false;

  constructor(options: AddonOptions = {}) {
    this.#options = options;
  }

  /** Called by `xterm.loadAddon`. */
  activate(xterm: Xterm): void {
    this.#xterm = xterm;
    this.#window = { cols: xterm.cols, rows: xterm.rows };
    this.#disposables = [
      xterm.onData((text) => this.#queuedInput(text)),
      xterm.onBinary((text) => this.#queuedInput(Uint8Array.from(text, (char) => char.charCodeAt(0)))),
      xterm.onResize((size) => this.#resized(size)),
      ...limitCsiCounts(xterm),
    ];
  }

  /** Called by xterm.js. Detaches; the terminal keeps running. */
  dispose(): void {
    this.disconnect();
    for (const item of this.#disposables.splice(0)) item.dispose();
    this.#xterm = undefined;
  }

  /** The attached terminal. */
  get terminal(): Terminal | undefined {
    return this.#terminal;
  }

  /** State of the connection; `closed` before the first. */
  get state(): TerminalState {
    return this.#terminal?.state ?? "closed";
  }

  /**
   * Attach to a terminal, and detach from the previous one.
   *
   * @param open opens the terminal.
   * @returns the terminal, for listeners.
   */
  connect(open: Open | undefined = this.#options.open): Terminal {
    const xterm = this.#xterm;
    if (!xterm) throw new Error("load the addon into an xterm.js terminal first");
    if (!open) throw new Error("pass a function that opens a terminal: connect((size) => sandbox.terminal(size))");
    this.disconnect();
    this.#measure();
    const terminal = open(this.#window);
    const ordered = new WriteQueue(xterm, (unparsed) => this.#onParsed(unparsed));
    this.#terminal = terminal;
    this.#writes = ordered;
    xterm.options.disableStdin = terminal.mode === "view";
    const { unparsedMax = 1024 * 1024, onStateChange } = this.#options;
    this.#subscriptions = [
      terminal.on("attached", (attached) => this.#attached(attached, attached.reconnected)),
      terminal.on("size", (size) => this.#applySize(size)),
      terminal.on("snapshot", ({ bytes }) => this.#drawSnapshot(bytes)),
      terminal.on("data", (bytes) => {
        ordered.write(bytes);
        if (ordered.unparsed > unparsedMax) this.#release ??= terminal.pause();
      }),
      terminal.on("ready", () => ordered.then(() => void (this.#replaying = false))),
      terminal.on("state", (state) => onStateChange?.(state)),
      terminal.on("error", (error) => onStateChange?.(terminal.state, error)),
    ];
    return terminal;
  }

  /** Detach. The terminal keeps running, and the screen keeps its content. */
  disconnect(): void {
    this.#release = undefined;
    this.#writes?.clear();
    this.#terminal?.close();
    for (const off of this.#subscriptions.splice(0)) off();
    this.#terminal = undefined;
    this.#writes = undefined;
    this.#replaying = false;
  }

  /**
   * Call when the window's size has changed. Reports the size that `fit` returns; the terminal takes it
   * unless another client typed last.
   */
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

  #queuedInput(data: string | Uint8Array): void {
    const terminal = this.#terminal;
    if (terminal?.state !== "connected" || terminal.mode === "view") return;
    if (this.#replaying && typeof data === "string" && TERMINAL_REPLY.test(data)) return;
    try {
      terminal.write(typeof data === "string" ? sanitizePaste(data) : data);
    } catch (error) {
      this.#options.onStateChange?.(terminal.state, error as Error);
    }
  }

  // The page resized xterm.js. If the terminal has another client's size, xterm.js is set back to it. The
  // server receives the new size either way, and applies it once this client types.
  #resized(size: TerminalSize): void {
    if (this.#resizing) return;
    this.#window = { cols: size.cols, rows: size.rows };
    const terminal = this.#terminal;
    if (!terminal || terminal.state === "closed") return;
    if (terminal.mode === "edit") terminal.resize(size.cols, size.rows);
    const me = terminal.attached?.client;
    const others = terminal.clients.some(({ client, typing }) => typing && client !== me);
    if (terminal.attached && (others || terminal.mode === "view")) this.#applySize(terminal.attached);
  }

  #attached(attached: TerminalAttached, reconnected: boolean): void {
    this.#writes?.then(() => {
      this.#replaying = true;
      // A different terminal: clear the screen, since a new terminal sends no snapshot.
      if (!reconnected) this.#xterm?.reset();
    });
    this.#applySize(attached);
  }

  #applySize({ cols, rows }: TerminalSize): void {
    this.#writes?.then(() => this.#resize({ cols, rows }));
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

  #drawSnapshot(bytes: Uint8Array): void {
    const ordered = this.#writes;
    let before = false;
    ordered?.then(() => {
      before = this.#replaying;
      this.#replaying = true;
    });
    ordered?.write(bytes);
    ordered?.then(() => void (this.#replaying = before));
  }

  #onParsed(unparsed: number): void {
    if (unparsed > 64 * 1024 || !this.#release) return;
    const release = this.#release;
    this.#release = undefined;
    release();
  }
}
