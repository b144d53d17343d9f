/** A command of a shell, and its output. */

import { IsoletError } from "./error.js";
import { envToJson, denials, type LostState } from "./exec.js";
import type { Denied } from "./network.js";
import type { ShellResult, ShellRunOptions } from "./shell-options.js";

/** Limit on the collected output per stream, in bytes. */
const OUTPUT_BYTES = 8 * 1024 * 1024;
/** Standard input up to this length, in characters, is sent with the command; more follows in pieces. */
const INLINE_INPUT_CHARS = 64 * 1024;
/** Size of such a piece, in bytes. */
const INPUT_BYTES = 64 * 1024;

/** Beginning of input frames. */
const INPUT = '{"type":"shell_stdin"';

/** Collected output of one stream. */
class StreamOutput {
  readonly decoder = new TextDecoder();
  text = "";
  collected = 0;
  dropped = 0;
}

/** The server's message about the end of a command. */
export interface ExitFrame {
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

/** A command that was sent or will be sent. */
export class Run {
  readonly id = `c-${crypto.randomUUID()}`;
  readonly frame: Record<string, unknown>;
  /** Standard input that is sent after the command. */
  readonly input: Uint8Array | undefined;
  readonly result: Promise<ShellResult>;
  /** Sent on some connection, perhaps without arriving. */
  sent = false;
  /** Known to have arrived: this command or a later one produced output or ended. */
  acknowledged = false;
  /** Standard input was sent, and may be lost when the connection breaks. */
  inputSent = false;
  /** Unknown whether it arrived before the connection broke. */
  unconfirmed = false;
  /** Signals, cancels and input sent: the server may refuse each without ending the command. */
  controlFramesSent = 0;
  finished = false;
  /** Frames about the command that are sent after it. */
  pendingFrames: string[] = [];
  readonly #timestamp = new Date().toISOString();
  readonly #output = { stdout: new StreamOutput(), stderr: new StreamOutput() };
  #done!: (result: ShellResult) => void;
  #failed!: (error: IsoletError) => void;

  constructor(
    private readonly command: string,
    private readonly options: ShellRunOptions,
    private readonly session: string | undefined,
  ) {
    if (command.includes("\0")) throw new IsoletError(0, "bad_command", "a command cannot contain a NUL byte");
    this.frame = { type: "shell_run", id: this.id, command };
    const { timeout, cwd, env, stdin, merge } = options;
    if (timeout !== undefined) this.frame["timeout_ms"] = timeout;
    if (cwd !== undefined) this.frame["cwd"] = cwd;
    if (env) this.frame["env"] = envToJson(env);
    if (merge) this.frame["merge"] = true;
    if (typeof stdin === "string" && stdin.length <= INLINE_INPUT_CHARS) this.frame["stdin"] = stdin;
    else if (stdin !== undefined) {
      this.frame["stdin"] = true;
      if (stdin !== true) this.input = typeof stdin === "string" ? new TextEncoder().encode(stdin) : stdin;
    }
    this.result = new Promise((done, failed) => {
      this.#done = done;
      this.#failed = failed;
    });
    // Callers that do not ask for the result must not cause an unhandled rejection.
    this.result.catch(() => undefined);
  }

  /** Add output. */
  take(stream: "stdout" | "stderr", bytes: Uint8Array): void {
    const output = this.#output[stream];
    this.#add(stream, output.decoder.decode(bytes, { stream: true }), bytes.length);
  }

  #add(stream: "stdout" | "stderr", text: string, size: number): void {
    const output = this.#output[stream];
    // Output after a gap is not collected.
    if (output.dropped > 0 || output.collected + size > OUTPUT_BYTES) output.dropped += size;
    else {
      output.text += text;
      output.collected += size;
    }
    if (text !== "") this.options.onOutput?.(stream, text);
  }

  /** Record lost bytes. */
  miss(stream: "stdout" | "stderr", size: number): void {
    this.#output[stream].dropped += size;
  }

  /** Take the pending frames for sending. */
  takeFrames(): string[] {
    const frames = this.pendingFrames.splice(0);
    if (frames.some((frame) => frame.startsWith(INPUT))) this.inputSent = true;
    return frames;
  }

  /** Set the result. */
  end(exit: ExitFrame): void {
    for (const stream of ["stdout", "stderr"] as const) this.#add(stream, this.#output[stream].decoder.decode(), 0);
    const { stdout, stderr } = this.#output;
    const cut = stdout.dropped + stderr.dropped > 0;
    this.finished = true;
    this.#done({
      success: exit.code === 0,
      exitCode: exit.code,
      stdout: stdout.text,
      stderr: stderr.text,
      command: this.command,
      duration: exit.duration_ms,
      timestamp: this.#timestamp,
      timedOut: exit.timed_out === true,
      cancelled: exit.cancelled === true,
      fresh: exit.fresh === true,
      ...(exit.signal == null ? {} : { signal: exit.signal }),
      ...(this.session === undefined ? {} : { sessionId: this.session }),
      ...(cut ? { truncated: { stdout: stdout.dropped, stderr: stderr.dropped } } : {}),
      ...(exit.lost ? { lost: exit.lost } : {}),
      ...(exit.lost_state ? { lostState: exit.lost_state } : {}),
      ...denials(exit),
    });
  }

  /** Set the error. */
  fail(error: IsoletError): void {
    this.finished = true;
    this.#failed(error);
  }

  /** Split standard input into frames. */
  *inputs(data: Uint8Array, eof: boolean): Generator<string> {
    for (let at = 0; at < data.length; at += INPUT_BYTES) {
      let text = "";
      for (const byte of data.subarray(at, at + INPUT_BYTES)) text += String.fromCharCode(byte);
      yield JSON.stringify({ type: "shell_stdin", id: this.id, data_b64: btoa(text) });
    }
    if (eof) yield JSON.stringify({ type: "shell_stdin", id: this.id, eof: true });
  }
}
