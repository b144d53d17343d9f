/** A session's terminal: what it shows, and what is typed. */

import { delay, tries } from "./backoff.js";
import { Emitter } from "./emitter.js";
import { IsoletError } from "./error.js";
import { Expect } from "./expect.js";
import { Frames, type TerminalAttached, type TerminalClient, type TerminalExit, type TerminalSize } from "./frames.js";
import { Pulse } from "./pulse.js";
import { reading } from "./reading.js";
import { here, type Socket } from "./socket.js";
import type { TerminalEvents, TerminalOptions, TerminalState } from "./terminal-options.js";
import { onWake } from "./wake.js";

/** Where a terminal is reached: asked anew for each connection. */
export type Door = (query: URLSearchParams) => Promise<{ url: string; headers?: Record<string, string> }>;

/** What may be typed at once and wait to be sent, in bytes. */
const UNSENT_BYTES_MAX = 1024 * 1024;
/** The most that the server takes in one frame, in bytes. */
const TYPE_BYTES_MAX = 64 * 1024;
/** How long one connection may take to open: the sandbox may have to wake. In ms. */
const OPEN_MS_MAX = 30_000;
/** Close codes that trying again does not cure: the two sides do not understand each other. */
const HOPELESS = [1002, 1003, 1007, 1008, 1009, 1010];
/** Close code: the terminal has ended meanwhile. */
const NONE_RUNS = 4404;

/** A terminal that comes back by itself after its connection was lost, and goes on where it was. */
export class Terminal extends Emitter<TerminalEvents> implements AsyncIterable<Uint8Array> {
  /** `"view"`: what is typed is refused. */
  readonly mode: "edit" | "view";
  readonly #door: Door;
  readonly #options: TerminalOptions;
  readonly #shown = new Expect();
  readonly #pulse = new Pulse(
    () => this.#socket?.send('{"type":"ping"}'),
    () => this.#lost(new IsoletError(0, "silent", "the connection to the terminal is dead")),
  );
  readonly #asleep: () => void;
  #state: TerminalState = "connecting";
  #window: TerminalSize;
  #attached: TerminalAttached | undefined;
  #offset: number | undefined;
  #clients: TerminalClient[] = [];
  #socket: Socket | undefined;
  #typed: Uint8Array[] = [];
  #unsent = 0;
  #attempt = 0;
  #recorded = false;
  #readyAt = 0;
  // Counts connections: what an earlier one still says is not heard.
  #turn = 0;
  #clock: ReturnType<typeof setTimeout> | undefined;
  #holds = new Set<symbol>();
  #exit: TerminalExit | undefined;
  // Why it is closed.
  #why: IsoletError | undefined;

  /** Use `sandbox.terminal()`, `session.terminal()` or {@link openTerminal}. */
  constructor(door: Door, options: TerminalOptions = {}) {
    super();
    this.#door = door;
    this.#options = options;
    this.mode = options.mode ?? "edit";
    this.#window = { cols: options.cols ?? 80, rows: options.rows ?? 24 };
    this.#asleep = onWake(() => this.#wake());
    // After this turn, so that whoever made it can listen first.
    queueMicrotask(() => this.#state === "connecting" && this.#connect());
  }

  /** How it is with the connection. */
  get state(): TerminalState {
    return this.#state;
  }

  /** What the last connect has led to; its size is the terminal's now. */
  get attached(): Readonly<TerminalAttached> | undefined {
    return this.#attached;
  }

  /** How many bytes of output the terminal had shown with the last that was told here. */
  get offset(): number | undefined {
    return this.#offset;
  }

  /** Who is attached. */
  get clients(): readonly TerminalClient[] {
    return this.#clients;
  }

  /**
   * Types. Before the connection is `ready`, and while it is lost, what is typed waits.
   * @throws {@link IsoletError} `view_only`, `closed`, or `too_much_typed` beyond 1 MiB that waits.
   */
  write(data: string | Uint8Array): void {
    if (this.mode === "view") throw new IsoletError(0, "view_only", "this terminal is only looked at");
    if (this.#state === "closed") throw closed();
    const bytes = typeof data === "string" ? new TextEncoder().encode(data) : data;
    const waiting = this.#unsent + (this.#socket?.unsent ?? 0);
    if (waiting + bytes.length > UNSENT_BYTES_MAX) {
      throw new IsoletError(0, "too_much_typed", `${waiting} bytes that were typed wait to be sent`);
    }
    for (let at = 0; at < bytes.length; at += TYPE_BYTES_MAX) {
      const part = bytes.slice(at, at + TYPE_BYTES_MAX);
      if (this.#state === "connected") this.#socket!.send(part);
      else {
        this.#typed.push(part);
        this.#unsent += part.length;
      }
    }
    if (this.#state === "connected") this.#pulse.spoke();
  }

  /** The window that shows it has another size. */
  resize(cols: number, rows: number): void {
    if (this.#window.cols === cols && this.#window.rows === rows) return;
    this.#window = { cols, rows };
    if (this.#state === "connected") this.#tellSize();
  }

  /** Leaves the terminal, which runs on. */
  close(): void {
    this.#finish(closed());
  }

  /**
   * Takes nothing more from the server until what this returns is called; then the terminal goes on
   * where it was, by the bytes that were missed or by a snapshot. For who cannot keep up: a page
   * cannot leave a WebSocket unread, and it would fill the page's memory, so there the connection
   * is given up meanwhile.
   */
  hold(): () => void {
    const hold = Symbol();
    this.#holds.add(hold);
    if (this.#holds.size === 1 && this.#state !== "closed") {
      if (this.#state === "connected" && this.#socket?.still) {
        this.#pulse.stop();
        this.#socket.still(true);
      } else this.#leave();
      this.#become("paused");
    }
    return () => {
      if (!this.#holds.delete(hold) || this.#holds.size > 0 || this.#state !== "paused") return;
      if (!this.#socket?.still) return this.#connect();
      this.#pulse.start();
      this.#become("connected");
      this.#flush();
      // Unless a listener holds it again.
      if (this.#holds.size === 0) this.#socket?.still?.(false);
    };
  }

  /**
   * Waits until the terminal has shown `pattern`; gives everything up to and with it, escape
   * sequences too. The next wait looks behind it.
   * @param options `timeout` in ms, 30,000 unless told.
   */
  async waitFor(pattern: string | RegExp, options: { timeout?: number } = {}): Promise<string> {
    return this.#shown.wait(pattern, options.timeout ?? 30_000);
  }

  /** Waits for the program's end. @throws {@link IsoletError} when the terminal is left before. */
  async exited(): Promise<TerminalExit> {
    return new Promise((resolve, reject) => {
      if (this.#exit) return resolve(this.#exit);
      if (this.#state === "closed") return reject(this.#why ?? closed());
      this.once("exit", resolve);
      const off = this.on("state", (state) => {
        if (state !== "closed") return;
        off();
        reject(this.#why ?? closed());
      });
    });
  }

  /** Output as it comes, until the program ends; a reader that is slow holds the terminal.
   *  @throws {@link IsoletError} in the loop when the terminal is lost before. */
  [Symbol.asyncIterator](): AsyncIterator<Uint8Array> {
    return reading(this, () => (this.#exit || this.#why?.code === "closed" ? undefined : this.#why));
  }

  #become(state: TerminalState, next?: { attempt: number; delayMs: number }): void {
    this.#state = state;
    if (next) this.tell("state", state, next);
    else this.tell("state", state);
  }

  #query(): URLSearchParams {
    const { shell, args = [], name, record } = this.#options;
    const query = new URLSearchParams({ cols: `${this.#window.cols}`, rows: `${this.#window.rows}`, events: "1" });
    if (shell !== undefined) query.set("shell", shell);
    for (const arg of args) query.append("arg", arg);
    if (this.mode === "view") query.set("mode", "view");
    if (name !== undefined) query.set("name", name);
    if (record && !this.#recorded) query.set("record", "1");
    if (this.#attached && this.#offset !== undefined) {
      query.set("terminal", this.#attached.terminal);
      query.set("since", `${this.#offset}`);
    }
    // What runs there is not to be run again because its end was missed.
    if (this.#attached) query.set("open", "0");
    return query;
  }

  #connect(): void {
    clearTimeout(this.#clock);
    const turn = ++this.#turn;
    const current = (): boolean => turn === this.#turn;
    const late = new IsoletError(0, "unreachable", `the terminal does not answer within ${OPEN_MS_MAX} ms`);
    this.#clock = setTimeout(() => current() && this.#lost(late), OPEN_MS_MAX);
    if (this.#state === "paused") this.#become(this.#attached ? "reconnecting" : "connecting");
    const frames = new Frames(this.#hearer());
    this.#door(this.#query())
      .then(({ url, headers }) => {
        if (!current()) return;
        this.#socket = here().connect(url, headers ?? {}, {
          open: () => current() && this.#pulse.start(),
          message: (data) => {
            if (!current()) return;
            this.#pulse.heard();
            frames.take(data);
          },
          closed: (code, refused) => {
            if (!current()) return;
            this.#lost(refused ?? ended(code), HOPELESS.includes(code));
          },
        });
      })
      .catch((error: unknown) => current() && this.#lost(asError(error)));
  }

  #hearer(): ConstructorParameters<typeof Frames>[0] {
    let attached = false;
    return {
      attached: (now) => {
        attached = true;
        const same = this.#attached?.terminal === now.terminal;
        if (!same) this.#offset = undefined;
        this.#attached = now;
        this.#recorded = true;
        this.tell("attached", { ...now, same });
      },
      snapshot: (snapshot) => {
        this.#shown.take(snapshot.bytes);
        this.tell("snapshot", snapshot);
      },
      at: (offset) => void (this.#offset = offset),
      output: (bytes) => {
        const offset = this.#offset ?? 0;
        this.#offset = offset + bytes.length;
        this.#shown.take(bytes);
        this.tell("data", bytes, offset);
      },
      ready: () => this.#ready(),
      size: ({ cols, rows }) => {
        if (this.#attached) this.#attached = { ...this.#attached, cols, rows };
        this.tell("size", { cols, rows });
      },
      clients: (clients) => this.tell("clients", (this.#clients = clients)),
      exit: ({ code, signal }) => {
        this.#exit = signal === undefined ? { code } : { code, signal };
        this.tell("exit", this.#exit);
        this.#finish(new IsoletError(0, "exited", `the terminal's program has ended (${code})`));
      },
      // Before it is attached the close code says the same.
      refused: (error) => attached && this.tell("error", error),
    };
  }

  #ready(): void {
    clearTimeout(this.#clock);
    this.#readyAt = Date.now();
    this.#become("connected");
    // A listener may have closed it, or hold it.
    if (this.state !== "connected") return;
    // What was asked with the address may have changed on the way.
    this.#tellSize();
    this.#flush();
    this.tell("ready");
  }

  #flush(): void {
    if (this.#state !== "connected") return;
    for (const part of this.#typed.splice(0)) this.#socket?.send(part);
    this.#unsent = 0;
  }

  #tellSize(): void {
    if (this.mode === "edit") this.#socket!.send(JSON.stringify({ type: "resize", ...this.#window }));
  }

  #leave(): void {
    this.#turn++;
    clearTimeout(this.#clock);
    this.#pulse.stop();
    this.#socket?.close();
    this.#socket = undefined;
  }

  #lost(error: IsoletError, hopeless = false): void {
    this.#leave();
    // Taken up again when it is let go.
    if (this.#holds.size > 0) return;
    const { reconnect = true } = this.#options;
    // One that stood for a while was good: the next is tried at once again.
    if (this.#state === "connected" && Date.now() - this.#readyAt > 1000) this.#attempt = 0;
    const final = hopeless || !cured(error);
    if (reconnect === false || final || this.#attempt >= tries(reconnect)) {
      this.tell("error", error);
      return this.#finish(error);
    }
    const delayMs = delay(reconnect, this.#attempt++);
    this.#clock = setTimeout(() => this.#connect(), delayMs);
    this.#become(this.#attached ? "reconnecting" : "connecting", { attempt: this.#attempt, delayMs });
  }

  /** The network is back, or the page is looked at again. */
  #wake(): void {
    if (this.#state === "connected") return this.#pulse.doubt();
    // A try that is under way began on the network that was.
    if (this.#state !== "reconnecting" && !(this.#state === "connecting" && this.#attempt > 0)) return;
    this.#leave();
    this.#connect();
  }

  #finish(why: IsoletError): void {
    if (this.#state === "closed") return;
    this.#why = why;
    this.#leave();
    this.#asleep();
    this.#holds.clear();
    this.#typed = [];
    this.#clients = [];
    this.#shown.end(why);
    this.#become("closed");
  }
}

/**
 * Attaches to a terminal by an address, for pages that hold no key: their own server takes a ticket
 * (`sandbox.createTicket`) for each connection and tells the page the address with it.
 * @param address gives `wss://…/v1/sandboxes/ID/terminal?session=…&ticket=…`; asked for each connection.
 */
export function openTerminal(
  address: () => string | URL | Promise<string | URL>,
  options: TerminalOptions = {},
): Terminal {
  return new Terminal(async (query) => {
    const url = new URL(await address());
    url.protocol = url.protocol.replace(/^http/, "ws");
    for (const [name, value] of query) url.searchParams.append(name, value);
    return { url: url.href };
  }, options);
}

function closed(): IsoletError {
  return new IsoletError(0, "closed", "this terminal was closed", "attach again");
}

/** A connection that ended by itself. */
function ended(code: number): IsoletError {
  if (code !== NONE_RUNS) return new IsoletError(0, "cut", `the connection to the terminal ended (${code})`);
  const hint = "attach again: that opens a fresh one";
  return new IsoletError(404, "no_terminal", "the terminal ended while the connection was lost", hint);
}

/** Whether trying again may help. */
function cured({ status, code }: IsoletError): boolean {
  if (status === 0) return ["unreachable", "cut", "silent", "no_address"].includes(code);
  return status === 408 || status === 425 || status === 429 || status >= 500;
}

function asError(error: unknown): IsoletError {
  if (error instanceof IsoletError) return error;
  return new IsoletError(0, "no_address", `the terminal's address cannot be had: ${String(error)}`, "", {
    cause: error,
  });
}
