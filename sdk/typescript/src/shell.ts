/**
 * A shell over one WebSocket: a persistent bash whose commands can receive input and signals and be
 * cancelled.
 */

import { delay, maxAttempts } from "./backoff.js";
import { Emitter } from "./emitter.js";
import { IsoletError } from "./error.js";
import type { AddressProvider } from "./terminal.js";
import type { ShellConnectionState, ShellEvents, ShellOptions, ShellResult, ShellRunOptions } from "./shell-options.js";
import { Run } from "./shell-run.js";
import { ShellState } from "./shell-state.js";
import { currentPlatform, type Socket } from "./socket.js";

/** A connection that is silent for this long is dead: the server pings every 14 s. */
const SILENT_MS = 45_000;

/** A running command of a shell. */
export class ShellCommand {
  /**
   * @param run state of the command.
   * @param flush sends the pending frames.
   */
  constructor(
    private readonly run: Run,
    private readonly flush: () => void,
  ) {}

  /** Unique within the shell. */
  get id(): string {
    return this.run.id;
  }

  /**
   * Wait for the end of the command.
   *
   * @returns exit status and output.
   * @throws {@link IsoletError} `shell_closed`: the shell ended first. `cut`: the connection was lost for
   *   good; the command may still run. `queue_full` or `bad_field`: the command was not run.
   */
  async result(): Promise<ShellResult> {
    return this.run.result;
  }

  /**
   * Write to standard input. The command must have been started with `stdin: true`. If the connection breaks
   * during the write, the command is cancelled, since it is unknown how much input arrived.
   */
  write(data: string | Uint8Array): void {
    this.#sendInput(typeof data === "string" ? new TextEncoder().encode(data) : data, false);
  }

  /** Close standard input. */
  closeInput(): void {
    this.#sendInput(new Uint8Array(), true);
  }

  #sendInput(data: Uint8Array, eof: boolean): void {
    if (this.run.finished) return;
    this.run.pendingFrames.push(...this.run.inputs(data, eof));
    this.flush();
  }

  /** Cancel the command: remove it from the queue, or interrupt and then kill it. The shell stays. */
  cancel(): void {
    this.#sendControl({ type: "shell_cancel", id: this.id });
  }

  /**
   * Send a signal to the command's foreground processes.
   *
   * @param signal name such as `"INT"`, or number.
   */
  signal(signal: number | string): void {
    this.#sendControl({ type: "shell_signal", id: this.id, signal });
  }

  #sendControl(frame: Record<string, unknown>): void {
    if (this.run.finished) return;
    this.run.controlFramesSent++;
    this.run.pendingFrames.push(JSON.stringify(frame));
    this.flush();
  }
}

/**
 * A persistent bash over a WebSocket. After a lost connection the shell reconnects and continues at the same
 * byte: no output is lost or repeated, and no command runs twice.
 */
export class Shell extends Emitter<ShellEvents> {
  readonly #decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() };
  readonly #state = new ShellState({
    background: (stream, bytes) => {
      this.emit("background", stream, this.#decoders[stream].decode(bytes, { stream: true }));
    },
    opened: (shell, at) => this.#opened(shell, at),
    ended: (closed) => {
      // The next command of a session gets a new shell.
      const text = `the shell has exited: ${closed.cause}`;
      if (this.options.sessionId === undefined) this.#finish(new IsoletError(0, "shell_closed", text));
      this.emit("closed", closed);
    },
  });
  #connection: ShellConnectionState = "connecting";
  #socket: Socket | undefined;
  // Name for resuming the shell after a lost connection.
  #name: string | undefined;
  #attempt = 0;
  // Number of the connection: messages of earlier ones are ignored.
  #connectionNumber = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #silence: ReturnType<typeof setTimeout> | undefined;
  #closeReason: IsoletError | undefined;

  /** Use `sandbox.shell()`, `session.shell()` or {@link openShell}. */
  constructor(
    private readonly address: AddressProvider,
    private readonly options: ShellOptions = {},
  ) {
    super();
    queueMicrotask(() => this.#connection === "connecting" && this.#connect());
  }

  /** State of the connection. */
  get state(): ShellConnectionState {
    return this.#connection;
  }

  /**
   * Run a command and wait for its end. Working directory, variables, functions and background jobs persist
   * for the next command. Commands of one shell run one after the other; at most 64 wait. A nonzero exit code
   * does not throw.
   *
   * @param command shell command, at most 1 MiB.
   * @param options timeout, directory, environment, input and callbacks.
   * @throws {@link IsoletError} as {@link ShellCommand.result}.
   */
  async run(command: string, options: ShellRunOptions = {}): Promise<ShellResult> {
    return this.start(command, options).result();
  }

  /**
   * Start a command without waiting for its end.
   *
   * @returns the command, to write to it, send signals or cancel it.
   */
  start(command: string, options: ShellRunOptions = {}): ShellCommand {
    const run = new Run(command, options, this.options.sessionId);
    const started = new ShellCommand(run, () => this.#send(this.#state.deferredFrames()));
    const { signal } = options;
    if (this.#closeReason) {
      run.fail(this.#closeReason);
    } else if (signal?.aborted) {
      run.fail(new IsoletError(0, "cancelled", "the command was cancelled before it was sent"));
    } else {
      this.#send(this.#state.start(run, this.#connection === "connected"));
      const cancel = (): void => started.cancel();
      signal?.addEventListener("abort", cancel, { once: true });
      void run.result.catch(() => undefined).finally(() => signal?.removeEventListener("abort", cancel));
    }
    return started;
  }

  /** Close the connection. A private shell and its commands end; a session's shell stays. */
  close(): void {
    this.#finish(new IsoletError(0, "shell_closed", "the shell was closed by this client", "open a new shell"));
  }

  /** Closes the shell at the end of `await using shell = sandbox.shell()`. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }

  #setState(state: ShellConnectionState): void {
    this.#connection = state;
    this.emit("state", state);
  }

  #send(frames: string[]): void {
    for (const frame of frames) this.#socket?.send(frame);
  }

  #query(): URLSearchParams {
    // The first frame contains the shell's name: web pages cannot read the response header.
    const query = new URLSearchParams({ frames: "binary", opened: "1" });
    const { sessionId } = this.options;
    if (sessionId !== undefined) query.set("session", sessionId);
    if (this.#name !== undefined) {
      query.set("resume", this.#name);
      query.set("since", this.#state.position);
    }
    return query;
  }

  #connect(): void {
    clearTimeout(this.#timer);
    const turn = ++this.#connectionNumber;
    const current = (): boolean => turn === this.#connectionNumber;
    this.address(this.#query())
      .then(({ url, headers }) => {
        if (!current()) return;
        this.#socket = currentPlatform().connect(url, headers ?? {}, {
          open: () => undefined,
          alive: () => current() && this.#alive(),
          message: (data) => {
            if (!current()) return;
            this.#alive();
            this.#state.take(data);
            if (current()) this.#send(this.#state.deferredFrames());
          },
          closed: (code, refused) => current() && this.#lost(refused ?? closeError(code), code),
        });
      })
      .catch((error: unknown) => {
        if (current()) this.#lost(error instanceof IsoletError ? error : unreachableError(error), 0);
      });
  }

  #opened(shell: string, at: string): void {
    if (this.#name === undefined) {
      this.#name = shell;
      this.#state.begin(at);
    }
    this.#attempt = 0;
    this.#setState("connected");
    this.#send(this.#state.resumeFrames());
    this.#alive();
  }

  #alive(): void {
    // Web pages cannot observe the server's pings, so silence proves nothing there.
    if (!currentPlatform().headers || this.#connection !== "connected") return;
    clearTimeout(this.#silence);
    const dead = new IsoletError(0, "silent", "the connection to the shell was silent for too long");
    this.#silence = setTimeout(() => this.#lost(dead, 0), SILENT_MS);
  }

  #disconnect(): void {
    this.#connectionNumber++;
    clearTimeout(this.#timer);
    clearTimeout(this.#silence);
    this.#socket?.close();
    this.#socket = undefined;
  }

  #lost(error: IsoletError, code: number): void {
    // A close frame would end a private shell.
    this.#socket?.abort?.();
    this.#disconnect();
    const { reconnect = true } = this.options;
    const first = this.#connection === "connecting";
    const permanent = FATAL_CLOSE_CODES.includes(code) || (error.status !== 0 && error.status < 500 && error.status !== 429);
    if (permanent || reconnect === false || this.#attempt >= maxAttempts(reconnect)) {
      this.#finish(error);
      return this.emit("error", error);
    }
    this.#timer = setTimeout(() => this.#connect(), delay(reconnect, this.#attempt++));
    this.#setState(first ? "connecting" : "reconnecting");
  }

  #finish(why: IsoletError): void {
    if (this.#connection === "closed") return;
    this.#closeReason = why;
    this.#disconnect();
    this.#state.close(why);
    this.#setState("closed");
  }
}

/**
 * Close codes after which reconnecting is useless: the shell or its sandbox has ended, the key was revoked,
 * or a protocol error.
 */
const FATAL_CLOSE_CODES = [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010];

function closeError(code: number): IsoletError {
  if (code === 1000 || code === 1001) return new IsoletError(0, "shell_closed", "the shell has exited");
  return new IsoletError(0, "cut", `the connection to the shell was lost (${code})`);
}

function unreachableError(error: unknown): IsoletError {
  return new IsoletError(0, "unreachable", `the shell cannot be reached: ${String(error)}`, "", { cause: error });
}
