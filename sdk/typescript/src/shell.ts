/** A shell over one WebSocket: a bash that stays, with input, signals and cancels while commands run. */

import { delay, tries } from "./backoff.js";
import { Emitter } from "./emitter.js";
import { IsoletError } from "./error.js";
import type { Door } from "./terminal.js";
import type { ShellConnection, ShellEvents, ShellOptions, ShellResult, ShellRunOptions } from "./shell-options.js";
import { Run } from "./shell-run.js";
import { ShellState } from "./shell-state.js";
import { here, type Socket } from "./socket.js";

/** A connection that says nothing for so long is dead: the server's pings come every 14 s. In ms. */
const SILENT_MS = 45_000;

/** A command of a shell while it runs. */
export class ShellCommand {
  /** @param sent is called when there are frames about it to be sent. */
  constructor(
    private readonly run: Run,
    private readonly sent: () => void,
  ) {}

  /** Names it in its shell. */
  get id(): string {
    return this.run.id;
  }

  /** How it ended, and what it said. @throws {@link IsoletError} `shell_closed` when the shell ended
   *  before that was heard; `cut` when the connection was lost for good; `queue_full`, `bad_field`. */
  async result(): Promise<ShellResult> {
    return this.run.result;
  }

  /** Gives it standard input; it must have been started with `stdin: true`. When the connection is
   *  lost in between it is cancelled: how much of its input has arrived cannot be known. */
  write(data: string | Uint8Array): void {
    this.#feed(typeof data === "string" ? new TextEncoder().encode(data) : data, false);
  }

  /** The end of its standard input. */
  closeInput(): void {
    this.#feed(new Uint8Array(), true);
  }

  #feed(data: Uint8Array, eof: boolean): void {
    if (this.run.over) return;
    this.run.after.push(...this.run.inputs(data, eof));
    this.sent();
  }

  /** Ends it: taken out while it waits, else interrupted, then killed. The shell stays. */
  cancel(): void {
    this.#urge({ type: "shell_cancel", id: this.id });
  }

  /** Sends a signal to what runs in its foreground: a number, or a name such as `"INT"`. */
  signal(signal: number | string): void {
    this.#urge({ type: "shell_signal", id: this.id, signal });
  }

  #urge(frame: Record<string, unknown>): void {
    if (this.run.over) return;
    this.run.urged++;
    this.run.after.push(JSON.stringify(frame));
    this.sent();
  }
}

/** A bash that stays, over one connection. When that breaks it comes back by itself, at the byte where
 *  it broke: no output is missing or comes twice, and no command runs twice. */
export class Shell extends Emitter<ShellEvents> {
  readonly #decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() };
  readonly #state = new ShellState({
    background: (stream, bytes) => {
      this.tell("background", stream, this.#decoders[stream].decode(bytes, { stream: true }));
    },
    opened: (shell, at) => this.#opened(shell, at),
    ended: (closed) => {
      // A session's next command gets a fresh one.
      const text = `the shell has ended: ${closed.cause}`;
      if (this.options.sessionId === undefined) this.#finish(new IsoletError(0, "shell_closed", text));
      this.tell("closed", closed);
    },
  });
  #connection: ShellConnection = "connecting";
  #socket: Socket | undefined;
  // What names this shell and its client for a return.
  #name: string | undefined;
  #attempt = 0;
  // Counts connections: what an earlier one still says is not heard.
  #turn = 0;
  #clock: ReturnType<typeof setTimeout> | undefined;
  #silence: ReturnType<typeof setTimeout> | undefined;
  #why: IsoletError | undefined;

  /** Use `sandbox.shell()`, `session.shell()` or `openShell`. */
  constructor(
    private readonly door: Door,
    private readonly options: ShellOptions = {},
  ) {
    super();
    queueMicrotask(() => this.#connection === "connecting" && this.#connect());
  }

  /** How it is with the connection. */
  get state(): ShellConnection {
    return this.#connection;
  }

  /**
   * Runs a command to its end; directory, variables, functions and jobs stay for the next. Commands of
   * one shell run one after the other, at most 64 wait.
   * @throws {@link IsoletError} as {@link ShellCommand.result} tells.
   */
  async run(command: string, options: ShellRunOptions = {}): Promise<ShellResult> {
    return this.start(command, options).result();
  }

  /** Starts a command, and gives it to be written to, signalled or cancelled. */
  start(command: string, options: ShellRunOptions = {}): ShellCommand {
    const run = new Run(command, options, this.options.sessionId);
    const started = new ShellCommand(run, () => this.#send(this.#state.rest()));
    const { signal } = options;
    if (this.#why) {
      run.fail(this.#why);
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

  /** Closes the connection. A private shell ends, and all that it runs; a session's stays. */
  close(): void {
    this.#finish(new IsoletError(0, "shell_closed", "the shell was closed here", "open another one"));
  }

  /** So that `await using shell = sandbox.shell()` closes it. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }

  #become(state: ShellConnection): void {
    this.#connection = state;
    this.tell("state", state);
  }

  #send(frames: string[]): void {
    for (const frame of frames) this.#socket?.send(frame);
  }

  #query(): URLSearchParams {
    // The first frame names the shell: pages are not shown the header that does.
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
    clearTimeout(this.#clock);
    const turn = ++this.#turn;
    const current = (): boolean => turn === this.#turn;
    this.door(this.#query())
      .then(({ url, headers }) => {
        if (!current()) return;
        this.#socket = here().connect(url, headers ?? {}, {
          open: () => undefined,
          alive: () => current() && this.#alive(),
          message: (data) => {
            if (!current()) return;
            this.#alive();
            this.#state.take(data);
            if (current()) this.#send(this.#state.rest());
          },
          closed: (code, refused) => current() && this.#lost(refused ?? ended(code), code),
        });
      })
      .catch((error: unknown) => {
        if (current()) this.#lost(error instanceof IsoletError ? error : unreachable(error), 0);
      });
  }

  #opened(shell: string, at: string): void {
    if (this.#name === undefined) {
      this.#name = shell;
      this.#state.begin(at);
    }
    this.#attempt = 0;
    this.#become("connected");
    this.#send(this.#state.returned());
    this.#alive();
  }

  #alive(): void {
    // Pages are not shown the server's pings: there silence says nothing.
    if (!here().headers || this.#connection !== "connected") return;
    clearTimeout(this.#silence);
    const dead = new IsoletError(0, "silent", "the connection to the shell is dead");
    this.#silence = setTimeout(() => this.#lost(dead, 0), SILENT_MS);
  }

  #leave(): void {
    this.#turn++;
    clearTimeout(this.#clock);
    clearTimeout(this.#silence);
    this.#socket?.close();
    this.#socket = undefined;
  }

  #lost(error: IsoletError, code: number): void {
    // A close frame would end a private shell.
    this.#socket?.drop?.();
    this.#leave();
    const { reconnect = true } = this.options;
    const first = this.#connection === "connecting";
    const lasting = HOPELESS.includes(code) || (error.status !== 0 && error.status < 500 && error.status !== 429);
    if (lasting || reconnect === false || this.#attempt >= tries(reconnect)) {
      this.#finish(error);
      return this.tell("error", error);
    }
    this.#clock = setTimeout(() => this.#connect(), delay(reconnect, this.#attempt++));
    this.#become(first ? "connecting" : "reconnecting");
  }

  #finish(why: IsoletError): void {
    if (this.#connection === "closed") return;
    this.#why = why;
    this.#leave();
    this.#state.close(why);
    this.#become("closed");
  }
}

/** Close codes that trying again does not cure: the shell or its sandbox has ended, the key was revoked,
 *  or the two sides do not understand each other. */
const HOPELESS = [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010];

function ended(code: number): IsoletError {
  if (code === 1000 || code === 1001) return new IsoletError(0, "shell_closed", "the shell has ended");
  return new IsoletError(0, "cut", `the connection to the shell ended (${code})`);
}

function unreachable(error: unknown): IsoletError {
  return new IsoletError(0, "unreachable", `the shell cannot be reached: ${String(error)}`, "", { cause: error });
}
