/** A session's terminal over a WebSocket. */

import { delay, maxAttempts } from "./backoff.js";
import { Emitter } from "./emitter.js";
import { IsoletError } from "./error.js";
import { OutputMatcher } from "./output-matcher.js";
import { Frames, type TerminalAttached, type TerminalClient, type TerminalExit, type TerminalSize } from "./frames.js";
import { Heartbeat } from "./heartbeat.js";
import { readTerminal } from "./terminal-reader.js";
import { currentPlatform, type Socket } from "./socket.js";
import type { TerminalEvents, TerminalOptions, TerminalState } from "./terminal-options.js";
import { onPageActivity } from "./page-activity.js";

/** Returns the address of a terminal or shell; called for each connection. */
export type AddressProvider = (query: URLSearchParams) => Promise<{ url: string; headers?: Record<string, string> }>;

/** Limit on input that waits to be sent, in bytes. */
const UNSENT_BYTES_MAX = 1024 * 1024;
/** The server's limit on one input frame, in bytes. */
const INPUT_FRAME_BYTES_MAX = 64 * 1024;
/** Time limit for opening a connection, in milliseconds: the sandbox may have to wake first. */
const OPEN_MS_MAX = 30_000;
/** Close codes after which reconnecting is useless: protocol errors, or access denied. */
const FATAL_CLOSE_CODES = [1002, 1003, 1007, 1008, 1009, 1010];
/** Close code: the terminal has ended during the interruption. */
const CLOSE_NO_TERMINAL = 4404;

/** A terminal. After a lost connection it reconnects and continues at the same byte. */
export class Terminal extends Emitter<TerminalEvents> implements AsyncIterable<Uint8Array> {
  /** `"view"` cannot send input. */
  readonly mode: "edit" | "view";
  readonly #address: AddressProvider;
  readonly #options: TerminalOptions;
  readonly #output = new OutputMatcher();
  readonly #heartbeat = new Heartbeat(
    () => this.#socket?.send('{"type":"ping"}'),
    () => this.#lost(new IsoletError(0, "silent", "the server did not answer a ping")),
  );
  readonly #stopActivityListener: () => void;
  #state: TerminalState = "connecting";
  #window: TerminalSize;
  #attached: TerminalAttached | undefined;
  #offset: number | undefined;
  #clients: TerminalClient[] = [];
  #socket: Socket | undefined;
  #queuedInput: Uint8Array[] = [];
  #unsent = 0;
  #attempt = 0;
  #recorded = false;
  #readyAt = 0;
  // Number of the connection: messages of earlier ones are ignored.
  #connectionNumber = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #pauses = new Set<symbol>();
  #exit: TerminalExit | undefined;
  // Why the terminal is closed.
  #closeReason: IsoletError | undefined;

  /** Use `sandbox.terminal()`, `session.terminal()` or {@link openTerminal}. */
  constructor(address: AddressProvider, options: TerminalOptions = {}) {
    super();
    this.#address = address;
    this.#options = options;
    this.mode = options.mode ?? "edit";
    this.#window = { cols: options.cols ?? 80, rows: options.rows ?? 24 };
    this.#stopActivityListener = onPageActivity(() => this.#wake());
    // Deferred, so that the caller can add listeners first.
    queueMicrotask(() => this.#state === "connecting" && this.#connect());
  }

  /** State of the connection. */
  get state(): TerminalState {
    return this.#state;
  }

  /** The terminal of the latest connection, with its current size. */
  get attached(): Readonly<TerminalAttached> | undefined {
    return this.#attached;
  }

  /** Bytes of output received so far. */
  get offset(): number | undefined {
    return this.#offset;
  }

  /** Attached clients. */
  get clients(): readonly TerminalClient[] {
    return this.#clients;
  }

  /**
   * Send input. Input is queued until the connection is `ready`, and while it is lost.
   *
   * @throws {@link IsoletError} `view_only`, `closed`, or `too_much_typed` if more than 1 MiB is queued.
   */
  write(data: string | Uint8Array): void {
    if (this.mode === "view") throw new IsoletError(0, "view_only", "this client is attached in view mode and cannot write");
    if (this.#state === "closed") throw closedError();
    const bytes = typeof data === "string" ? new TextEncoder().encode(data) : data;
    const waiting = this.#unsent + (this.#socket?.unsent ?? 0);
    if (waiting + bytes.length > UNSENT_BYTES_MAX) {
      throw new IsoletError(0, "too_much_typed", `${waiting} bytes of input are waiting to be sent`);
    }
    for (let at = 0; at < bytes.length; at += INPUT_FRAME_BYTES_MAX) {
      const part = bytes.slice(at, at + INPUT_FRAME_BYTES_MAX);
      if (this.#state === "connected") this.#socket!.send(part);
      else {
        this.#queuedInput.push(part);
        this.#unsent += part.length;
      }
    }
    if (this.#state === "connected") this.#heartbeat.sent();
  }

  /** Report a new size of the client's window. The terminal has the size of the client that typed last. */
  resize(cols: number, rows: number): void {
    if (this.#window.cols === cols && this.#window.rows === rows) return;
    this.#window = { cols, rows };
    if (this.#state === "connected") this.#sendSize();
  }

  /** Detach; the terminal keeps running. */
  close(): void {
    this.#finish(closedError());
  }

  /**
   * Stop accepting output until the returned function is called. The terminal then continues with the missed
   * output or with a snapshot. Useful when the receiver cannot keep up: a web page cannot leave a WebSocket
   * unread without filling its memory, so there the connection is closed while the terminal is paused.
   *
   * @returns a function that resumes the output.
   */
  pause(): () => void {
    const pause = Symbol();
    this.#pauses.add(pause);
    if (this.#pauses.size === 1 && this.#state !== "closed") {
      if (this.#state === "connected" && this.#socket?.setPaused) {
        this.#heartbeat.stop();
        this.#socket.setPaused(true);
      } else this.#disconnect();
      this.#setState("paused");
    }
    return () => {
      if (!this.#pauses.delete(pause) || this.#pauses.size > 0 || this.#state !== "paused") return;
      if (!this.#socket?.setPaused) return this.#connect();
      this.#heartbeat.start();
      this.#setState("connected");
      this.#flush();
      // A listener may have paused it again.
      if (this.#pauses.size === 0) this.#socket?.setPaused?.(false);
    };
  }

  /**
   * Wait until the output contains `pattern`. The next wait searches after the match.
   *
   * @param pattern text or expression, searched in the last 256 KiB of output.
   * @param options `timeout` in milliseconds; 30,000 by default.
   * @returns output up to and including the match, with escape sequences.
   * @throws {@link IsoletError} `timeout`, or the reason why the terminal was closed.
   */
  async waitFor(pattern: string | RegExp, options: { timeout?: number } = {}): Promise<string> {
    return this.#output.wait(pattern, options.timeout ?? 30_000);
  }

  /**
   * Wait for the program's exit.
   *
   * @throws {@link IsoletError} if the client detaches or the connection is lost for good.
   */
  async exited(): Promise<TerminalExit> {
    return new Promise((resolve, reject) => {
      if (this.#exit) return resolve(this.#exit);
      if (this.#state === "closed") return reject(this.#closeReason ?? closedError());
      this.once("exit", resolve);
      const off = this.on("state", (state) => {
        if (state !== "closed") return;
        off();
        reject(this.#closeReason ?? closedError());
      });
    });
  }

  /**
   * Iterate over the output until the program exits. A slow reader pauses the terminal.
   *
   * @throws {@link IsoletError} in the loop, if the connection is lost for good.
   */
  [Symbol.asyncIterator](): AsyncIterator<Uint8Array> {
    return readTerminal(this, () => (this.#exit || this.#closeReason?.code === "closed" ? undefined : this.#closeReason));
  }

  #setState(state: TerminalState, next?: { attempt: number; delayMs: number }): void {
    this.#state = state;
    if (next) this.emit("state", state, next);
    else this.emit("state", state);
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
    // If the program exited during the interruption, it must not be started a second time.
    if (this.#attached) query.set("open", "0");
    return query;
  }

  #connect(): void {
    clearTimeout(this.#timer);
    const turn = ++this.#connectionNumber;
    const current = (): boolean => turn === this.#connectionNumber;
    const late = new IsoletError(0, "unreachable", `the terminal did not answer within ${OPEN_MS_MAX} ms`);
    this.#timer = setTimeout(() => current() && this.#lost(late), OPEN_MS_MAX);
    if (this.#state === "paused") this.#setState(this.#attached ? "reconnecting" : "connecting");
    const frames = new Frames(this.#frameHandler());
    this.#address(this.#query())
      .then(({ url, headers }) => {
        if (!current()) return;
        this.#socket = currentPlatform().connect(url, headers ?? {}, {
          open: () => current() && this.#heartbeat.start(),
          message: (data) => {
            if (!current()) return;
            this.#heartbeat.received();
            frames.take(data);
          },
          closed: (code, refused) => {
            if (!current()) return;
            this.#lost(refused ?? closeError(code), FATAL_CLOSE_CODES.includes(code));
          },
        });
      })
      .catch((error: unknown) => current() && this.#lost(asError(error)));
  }

  #frameHandler(): ConstructorParameters<typeof Frames>[0] {
    let attached = false;
    return {
      attached: (now) => {
        attached = true;
        const reconnected = this.#attached?.terminal === now.terminal;
        if (!reconnected) this.#offset = undefined;
        this.#attached = now;
        this.#recorded = true;
        this.emit("attached", { ...now, reconnected });
      },
      snapshot: (snapshot) => {
        this.#output.take(snapshot.bytes);
        this.emit("snapshot", snapshot);
      },
      at: (offset) => void (this.#offset = offset),
      output: (bytes) => {
        const offset = this.#offset ?? 0;
        this.#offset = offset + bytes.length;
        this.#output.take(bytes);
        this.emit("data", bytes, offset);
      },
      ready: () => this.#ready(),
      size: ({ cols, rows }) => {
        if (this.#attached) this.#attached = { ...this.#attached, cols, rows };
        this.emit("size", { cols, rows });
      },
      clients: (clients) => this.emit("clients", (this.#clients = clients)),
      exit: ({ code, signal }) => {
        this.#exit = signal === undefined ? { code } : { code, signal };
        this.emit("exit", this.#exit);
        this.#finish(new IsoletError(0, "exited", `the terminal's program has exited (${code})`));
      },
      // Before the attach, the close code reports the same error.
      refused: (error) => attached && this.emit("error", error),
    };
  }

  #ready(): void {
    clearTimeout(this.#timer);
    this.#readyAt = Date.now();
    this.#setState("connected");
    // A listener may have closed or paused it.
    if (this.state !== "connected") return;
    // The size in the address may be outdated.
    this.#sendSize();
    this.#flush();
    this.emit("ready");
  }

  #flush(): void {
    if (this.#state !== "connected") return;
    for (const part of this.#queuedInput.splice(0)) this.#socket?.send(part);
    this.#unsent = 0;
  }

  #sendSize(): void {
    if (this.mode === "edit") this.#socket!.send(JSON.stringify({ type: "resize", ...this.#window }));
  }

  #disconnect(): void {
    this.#connectionNumber++;
    clearTimeout(this.#timer);
    this.#heartbeat.stop();
    this.#socket?.close();
    this.#socket = undefined;
  }

  #lost(error: IsoletError, permanent = false): void {
    this.#disconnect();
    // Resuming reconnects.
    if (this.#pauses.size > 0) return;
    const { reconnect = true } = this.#options;
    // After a connection that lasted, the first attempt is immediate again.
    if (this.#state === "connected" && Date.now() - this.#readyAt > 1000) this.#attempt = 0;
    const final = permanent || !isRetryable(error);
    if (reconnect === false || final || this.#attempt >= maxAttempts(reconnect)) {
      this.emit("error", error);
      return this.#finish(error);
    }
    const delayMs = delay(reconnect, this.#attempt++);
    this.#timer = setTimeout(() => this.#connect(), delayMs);
    this.#setState(this.#attached ? "reconnecting" : "connecting", { attempt: this.#attempt, delayMs });
  }

  /** The network is back, or the page became visible. */
  #wake(): void {
    if (this.#state === "connected") return this.#heartbeat.check();
    // The attempt in progress started on the old network.
    if (this.#state !== "reconnecting" && !(this.#state === "connecting" && this.#attempt > 0)) return;
    this.#disconnect();
    this.#connect();
  }

  #finish(why: IsoletError): void {
    if (this.#state === "closed") return;
    this.#closeReason = why;
    this.#disconnect();
    this.#stopActivityListener();
    this.#pauses.clear();
    this.#queuedInput = [];
    this.#clients = [];
    this.#output.end(why);
    this.#setState("closed");
  }
}

/**
 * Attach to a terminal at an address: for web pages, which must not know the key. Their server creates a
 * ticket (`sandbox.createTicket`) for each connection and sends the address with it to the page.
 *
 * @param address returns `wss://…/v1/sandboxes/ID/terminal?session=…&ticket=…`; called for each connection.
 * @param options size, mode, name and reconnecting.
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

function closedError(): IsoletError {
  return new IsoletError(0, "closed", "this client detached from the terminal", "attach again");
}

/** Error for a connection that the server closed. */
function closeError(code: number): IsoletError {
  if (code !== CLOSE_NO_TERMINAL) return new IsoletError(0, "cut", `the connection to the terminal was lost (${code})`);
  const hint = "attach again to open a new one";
  return new IsoletError(404, "no_terminal", "the terminal ended while the connection was lost", hint);
}

/** Whether another attempt may succeed. */
function isRetryable({ status, code }: IsoletError): boolean {
  if (status === 0) return ["unreachable", "cut", "silent", "no_address"].includes(code);
  return status === 408 || status === 425 || status === 429 || status >= 500;
}

function asError(error: unknown): IsoletError {
  if (error instanceof IsoletError) return error;
  return new IsoletError(0, "no_address", `the terminal's address could not be determined: ${String(error)}`, "", {
    cause: error,
  });
}
