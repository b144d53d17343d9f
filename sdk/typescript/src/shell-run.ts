/** A command of a shell, and what it says. */

import { IsoletError } from "./error.js";
import { named, refusals, type LostState } from "./exec.js";
import type { Denied } from "./network.js";
import type { ShellResult, ShellRunOptions } from "./shell-options.js";

/** Kept of each stream for a result, in bytes. */
const OUTPUT_BYTES = 8 * 1024 * 1024;
/** The longest input that goes with its command, in characters; more follows in pieces. */
const WHOLE_INPUT = 64 * 1024;
/** The size of such a piece, in bytes. */
const INPUT_BYTES = 64 * 1024;

/** How frames of input begin. */
const INPUT = '{"type":"shell_stdin"';

/** What one stream has said. */
class Said {
  readonly decoder = new TextDecoder();
  text = "";
  kept = 0;
  dropped = 0;
}

/** How the server tells a command's end. */
export interface Ended {
  code: number;
  duration_ms: number;
  signal?: number | null;
  timed_out?: boolean;
  cancelled?: boolean;
  fresh?: boolean;
  lost?: string[] | null;
  lost_state?: LostState[] | null;
  denied?: Denied[] | null;
  denied_lost?: number | null;
}

/** A command that was sent, or is about to be. */
export class Run {
  readonly id = `c-${crypto.randomUUID()}`;
  readonly frame: Record<string, unknown>;
  /** What follows it as input. */
  readonly input: Uint8Array | undefined;
  readonly result: Promise<ShellResult>;
  /** It went out on some connection; whether it arrived is another matter. */
  sent = false;
  /** The shell has it: it said something, or a later one did. */
  heard = false;
  /** Input went out that may have been on its way when the connection broke. */
  fed = false;
  /** Whether it arrived before a connection broke is not known. */
  doubtful = false;
  /** Signals, cancels and input that went out: each may be refused without its command's end. */
  urged = 0;
  over = false;
  /** Frames about it that go out behind its own. */
  after: string[] = [];
  readonly #timestamp = new Date().toISOString();
  readonly #said = { stdout: new Said(), stderr: new Said() };
  #done!: (result: ShellResult) => void;
  #failed!: (error: IsoletError) => void;

  constructor(
    private readonly command: string,
    private readonly options: ShellRunOptions,
    private readonly session: string | undefined,
  ) {
    if (command.includes("\0")) throw new IsoletError(0, "bad_command", "a command cannot hold a NUL byte");
    this.frame = { type: "shell_run", id: this.id, command };
    const { timeout, cwd, env, stdin, merge } = options;
    if (timeout !== undefined) this.frame["timeout_ms"] = timeout;
    if (cwd !== undefined) this.frame["cwd"] = cwd;
    if (env) this.frame["env"] = named(env);
    if (merge) this.frame["merge"] = true;
    if (typeof stdin === "string" && stdin.length <= WHOLE_INPUT) this.frame["stdin"] = stdin;
    else if (stdin !== undefined) {
      this.frame["stdin"] = true;
      if (stdin !== true) this.input = typeof stdin === "string" ? new TextEncoder().encode(stdin) : stdin;
    }
    this.result = new Promise((done, failed) => ([this.#done, this.#failed] = [done, failed]));
    // Who does not ask for the result is not told of its failure.
    this.result.catch(() => undefined);
  }

  /** A piece of its output. */
  take(stream: "stdout" | "stderr", bytes: Uint8Array): void {
    const said = this.#said[stream];
    this.#add(stream, said.decoder.decode(bytes, { stream: true }), bytes.length);
  }

  #add(stream: "stdout" | "stderr", text: string, size: number): void {
    const said = this.#said[stream];
    // Nothing is kept behind a hole.
    if (said.dropped > 0 || said.kept + size > OUTPUT_BYTES) said.dropped += size;
    else [said.text, said.kept] = [said.text + text, said.kept + size];
    if (text !== "") this.options.onOutput?.(stream, text);
  }

  /** Bytes that are no longer held. */
  miss(stream: "stdout" | "stderr", size: number): void {
    this.#said[stream].dropped += size;
  }

  /** The frames about it that are to go out now. */
  said(): string[] {
    const frames = this.after.splice(0);
    if (frames.some((frame) => frame.startsWith(INPUT))) this.fed = true;
    return frames;
  }

  /** It has ended. */
  end(told: Ended): void {
    for (const stream of ["stdout", "stderr"] as const) this.#add(stream, this.#said[stream].decoder.decode(), 0);
    const { stdout, stderr } = this.#said;
    const cut = stdout.dropped + stderr.dropped > 0;
    this.over = true;
    this.#done({
      success: told.code === 0,
      exitCode: told.code,
      stdout: stdout.text,
      stderr: stderr.text,
      command: this.command,
      duration: told.duration_ms,
      timestamp: this.#timestamp,
      timedOut: told.timed_out === true,
      cancelled: told.cancelled === true,
      fresh: told.fresh === true,
      ...(told.signal == null ? {} : { signal: told.signal }),
      ...(this.session === undefined ? {} : { sessionId: this.session }),
      ...(cut ? { truncated: { stdout: stdout.dropped, stderr: stderr.dropped } } : {}),
      ...(told.lost ? { lost: told.lost } : {}),
      ...(told.lost_state ? { lostState: told.lost_state } : {}),
      ...refusals(told),
    });
  }

  /** It will not be known how it ends. */
  fail(error: IsoletError): void {
    this.over = true;
    this.#failed(error);
  }

  /** Frames that are its standard input. */
  *inputs(data: Uint8Array, eof: boolean): Generator<string> {
    for (let at = 0; at < data.length; at += INPUT_BYTES) {
      let text = "";
      for (const byte of data.subarray(at, at + INPUT_BYTES)) text += String.fromCharCode(byte);
      yield JSON.stringify({ type: "shell_stdin", id: this.id, data_b64: btoa(text) });
    }
    if (eof) yield JSON.stringify({ type: "shell_stdin", id: this.id, eof: true });
  }
}
