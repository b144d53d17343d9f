/**
 * State of a shell, derived from WebSocket frames. Independent of connections: several connections in a row
 * may serve one shell. The state remembers the output offsets, so that no byte is lost or repeated and no
 * command runs twice.
 */

import { IsoletError } from "./error.js";
import type { ShellClosed } from "./shell-options.js";
import type { ExitFrame, Run } from "./shell-run.js";

// Exits with the exit code of the previous command, so that `$?` does not change.
const FENCE = "(exit $?)";
const STREAMS = [undefined, "stdout", "stderr"] as const;

/** Receives what belongs to no command. */
export interface ShellStateHandler {
  /** The connection is open: the shell's name and position. */
  opened(shell: string, at: string): void;
  /** Output of background jobs. */
  background(stream: "stdout" | "stderr", bytes: Uint8Array): void;
  /** The bash has exited. */
  ended(closed: ShellClosed): void;
}

/** Fields of all text frames. */
interface ServerFrame extends Required<ShellClosed> {
  type: string;
  shell: string;
  at: string;
  id?: string;
  seq: number;
  stream: "stdout" | "stderr";
  from: number;
  handler: number;
  error: string;
  message: string;
  hint: string;
}

/** State of one shell. */
export class ShellState {
  readonly #runs = new Map<string, Run>();
  readonly #offsets: [number, number] = [0, 0];
  #seq = 0;
  // Id of the fence command. While it is set, new commands wait: see `resumeFrames`.
  #fence: string | undefined;
  #fenceEnded = false;

  constructor(private readonly handler: ShellStateHandler) {}

  /** Bytes read of standard output and error, and the number of the latest exit. */
  get position(): string {
    return [...this.#offsets, this.#seq].join(",");
  }

  /** Start at the position of the first connection. */
  begin(position: string): void {
    const [out = 0, err = 0, seq = 0] = position.split(",").map(Number);
    this.#offsets[0] = out;
    this.#offsets[1] = err;
    this.#seq = seq;
  }

  /**
   * Register a command.
   *
   * @returns the frames to send now; empty while commands wait for the fence.
   */
  start(run: Run, connected: boolean): string[] {
    this.#runs.set(run.id, run);
    if (run.input) run.pendingFrames.push(...run.inputs(run.input, true));
    if (!connected || this.#fence !== undefined) return [];
    run.sent = true;
    return [JSON.stringify(run.frame), ...this.deferredFrames()];
  }

  /**
   * Build the frames to send after a connect.
   *
   * A command that was sent just before the connection broke may or may not have arrived. Since commands run
   * in order, the client sends a fence: a command without effect. Commands that have not ended when the fence
   * ends never arrived, and are sent again. So no command runs twice and none is skipped.
   */
  resumeFrames(): string[] {
    const frames: string[] = [];
    for (const run of [...this.#runs.values()]) if (run.inputSent) frames.push(this.#cancelRun(run));
    const runs = [...this.#runs.values()];
    for (const run of runs) run.unconfirmed = run.sent && !run.acknowledged;
    if (this.#fence === undefined && !runs.some((run) => run.unconfirmed)) {
      this.#fenceEnded = true;
      return [...frames, ...this.deferredFrames()];
    }
    this.#fence = `fence-${crypto.randomUUID()}`;
    this.#fenceEnded = false;
    const fence = { type: "shell_run", id: this.#fence, command: FENCE, timeout_ms: 0 };
    return [...frames, JSON.stringify(fence)];
  }

  // Unknown how much of the input arrived: the command must not continue with part of it.
  #cancelRun(run: Run): string {
    const text = `the connection broke while input for command ${run.id} was sent; the command was cancelled`;
    this.#fail(run, new IsoletError(0, "cut", text));
    return JSON.stringify({ type: "shell_cancel", id: run.id });
  }

  /**
   * Frames to send after each message: commands that waited or never arrived, and pending frames of the
   * others.
   */
  deferredFrames(): string[] {
    const frames: string[] = [];
    if (this.#fenceEnded) {
      this.#fence = undefined;
      this.#fenceEnded = false;
      for (const run of this.#runs.values()) {
        if (run.sent && !run.unconfirmed) continue;
        run.sent = true;
        run.unconfirmed = false;
        frames.push(JSON.stringify(run.frame));
      }
    }
    for (const run of this.#runs.values()) if (run.sent && !run.unconfirmed) frames.push(...run.takeFrames());
    return frames;
  }

  /** Process one message of the server. */
  take(message: string | Uint8Array): void {
    if (typeof message !== "string") return this.#onOutput(message);
    const frame = JSON.parse(message) as ServerFrame;
    if (frame.type === "shell_opened") this.handler.opened(frame.shell, frame.at);
    else if (frame.type === "shell_exit") this.#onExit(frame);
    else if (frame.type === "shell_gap") this.#onGap(frame);
    else if (frame.type === "shell_error") this.#onError(frame);
    else if (frame.type === "shell_closed") {
      const { code, signal, cause } = frame;
      this.handler.ended({ cause, ...(code == null ? {} : { code }), ...(signal == null ? {} : { signal }) });
    }
  }

  #onOutput(frame: Uint8Array): void {
    const view = new DataView(frame.buffer, frame.byteOffset, frame.byteLength);
    const stream = STREAMS[view.getUint8(0)];
    if (!stream) return;
    const offset = Number(view.getBigUint64(1));
    const begin = 11 + view.getUint16(9);
    const bytes = frame.subarray(begin);
    const at = stream === "stdout" ? 0 : 1;
    this.#offsets[at] = Math.max(this.#offsets[at], offset + bytes.length);
    const run = this.#runs.get(new TextDecoder().decode(frame.subarray(11, begin)));
    if (!run) return this.handler.background(stream, bytes);
    this.#acknowledge(run);
    run.take(stream, bytes);
  }

  // Messages arrive in order: earlier commands have arrived too.
  #acknowledge(run: Run): void {
    for (const other of this.#runs.values()) {
      other.acknowledged = true;
      other.unconfirmed = false;
      if (other === run) return;
    }
  }

  #onGap(frame: ServerFrame): void {
    const at = frame.stream === "stdout" ? 0 : 1;
    this.#offsets[at] = Math.max(this.#offsets[at], frame.handler);
    const [first] = this.#runs.values();
    if (first?.acknowledged) first.miss(frame.stream, frame.handler - frame.from);
  }

  #onExit(frame: ServerFrame): void {
    this.#seq = Math.max(this.#seq, frame.seq);
    if (frame.id === this.#fence) {
      this.#fenceEnded = true;
      return;
    }
    const run = this.#runs.get(frame.id ?? "");
    if (!run) return;
    this.#acknowledge(run);
    this.#runs.delete(run.id);
    run.end(frame as unknown as ExitFrame);
  }

  #onError(frame: ServerFrame): void {
    const error = new IsoletError(0, frame.error, frame.message, frame.hint);
    const run = frame.id === undefined ? undefined : this.#runs.get(frame.id);
    if (frame.id === undefined || frame.id === this.#fence) {
      // The server could not parse a frame, or the shell accepts no more commands: commands that were not
      // acknowledged are lost.
      for (const other of [...this.#runs.values()]) if (!other.acknowledged) this.#fail(other, error);
      this.#fenceEnded = frame.id !== undefined;
    } else if (run && !run.acknowledged) {
      // Refers to a signal or to input, not to the command itself.
      if (run.controlFramesSent > 0 && error.code === "bad_request") run.controlFramesSent--;
      else this.#fail(run, error);
    }
  }

  /** Fail all commands. */
  close(error: IsoletError): void {
    for (const run of [...this.#runs.values()]) this.#fail(run, error);
  }

  #fail(run: Run, error: IsoletError): void {
    this.#runs.delete(run.id);
    run.fail(error);
  }
}
