/** A shell's WebSocket: what is known of the shell, and of its commands, from its frames. Knows
 *  nothing of connections: one after the other is used for the same shell, and how far it was read is
 *  kept here, so that no byte is missing or comes twice, and no command runs twice. */

import { IsoletError } from "./error.js";
import type { ShellClosed } from "./shell-options.js";
import type { Ended, Run } from "./shell-run.js";

// Ends with what the command before it has ended with, so that nothing in the shell changes.
const FENCE = "(exit $?)";
const STREAMS = [undefined, "stdout", "stderr"] as const;

/** Who wants to know what belongs to no command. */
export interface ShellHearer {
  /** The connection is in force: what names the shell, and where it stands. */
  opened(shell: string, at: string): void;
  /** Output of background jobs. */
  background(stream: "stdout" | "stderr", bytes: Uint8Array): void;
  /** The bash has ended. */
  ended(closed: ShellClosed): void;
}

/** The fields of all text frames. */
interface Told extends Required<ShellClosed> {
  type: string;
  shell: string;
  at: string;
  id?: string;
  seq: number;
  stream: "stdout" | "stderr";
  from: number;
  to: number;
  error: string;
  message: string;
  hint: string;
}

/** One shell. */
export class ShellState {
  readonly #runs = new Map<string, Run>();
  readonly #at: [number, number] = [0, 0];
  #seq = 0;
  // While there is one, commands are held back: see `returned`.
  #fence: string | undefined;
  #fenceOver = false;

  constructor(private readonly to: ShellHearer) {}

  /** Bytes of standard output and error that were read, and the last exit. */
  get position(): string {
    return [...this.#at, this.#seq].join(",");
  }

  /** Takes up a shell where its first connection has led to. */
  begin(position: string): void {
    const [out = 0, err = 0, seq = 0] = position.split(",").map(Number);
    [this.#at[0], this.#at[1], this.#seq] = [out, err, seq];
  }

  /** Frames that run a command. They go out later when it is not known what the shell has. */
  start(run: Run, connected: boolean): string[] {
    this.#runs.set(run.id, run);
    if (run.input) run.after.push(...run.inputs(run.input, true));
    if (!connected || this.#fence !== undefined) return [];
    run.sent = true;
    return [JSON.stringify(run.frame), ...this.rest()];
  }

  /** Frames for a connection that takes the place of one that broke, or is the first.
   *
   *  A command that went out as the connection broke has arrived or not. Commands run in order: one
   *  that changes nothing is sent behind them, and what has not ended when that ends has never
   *  arrived, and is sent again. So nothing runs twice, and nothing is left out. */
  returned(): string[] {
    const frames: string[] = [];
    for (const run of [...this.#runs.values()]) if (run.fed) frames.push(this.#giveUp(run));
    const runs = [...this.#runs.values()];
    for (const run of runs) run.doubtful = run.sent && !run.heard;
    if (this.#fence === undefined && !runs.some((run) => run.doubtful)) {
      this.#fenceOver = true;
      return [...frames, ...this.rest()];
    }
    this.#fence = `fence-${crypto.randomUUID()}`;
    this.#fenceOver = false;
    const fence = { type: "shell_run", id: this.#fence, command: FENCE, timeout_ms: 0 };
    return [...frames, JSON.stringify(fence)];
  }

  // How much of its input arrived cannot be known: it is not to work on half of it.
  #giveUp(run: Run): string {
    const text = `the connection broke while command ${run.id} was given its input: it is cancelled`;
    this.#fail(run, new IsoletError(0, "cut", text));
    return JSON.stringify({ type: "shell_cancel", id: run.id });
  }

  /** After each message: commands that were held back, or have not arrived, and what is said of those
   *  that have. */
  rest(): string[] {
    const frames: string[] = [];
    if (this.#fenceOver) {
      [this.#fence, this.#fenceOver] = [undefined, false];
      for (const run of this.#runs.values()) {
        if (run.sent && !run.doubtful) continue;
        [run.sent, run.doubtful] = [true, false];
        frames.push(JSON.stringify(run.frame));
      }
    }
    for (const run of this.#runs.values()) if (run.sent && !run.doubtful) frames.push(...run.said());
    return frames;
  }

  /** One message of the server. */
  take(message: string | Uint8Array): void {
    if (typeof message !== "string") return this.#output(message);
    const told = JSON.parse(message) as Told;
    if (told.type === "shell_opened") this.to.opened(told.shell, told.at);
    else if (told.type === "shell_exit") this.#exit(told);
    else if (told.type === "shell_gap") this.#gap(told);
    else if (told.type === "shell_error") this.#refused(told);
    else if (told.type === "shell_closed") {
      const { code, signal, cause } = told;
      this.to.ended({ cause, ...(code == null ? {} : { code }), ...(signal == null ? {} : { signal }) });
    }
  }

  #output(frame: Uint8Array): void {
    const view = new DataView(frame.buffer, frame.byteOffset, frame.byteLength);
    const stream = STREAMS[view.getUint8(0)];
    if (!stream) return;
    const offset = Number(view.getBigUint64(1));
    const begin = 11 + view.getUint16(9);
    const bytes = frame.subarray(begin);
    const at = stream === "stdout" ? 0 : 1;
    this.#at[at] = Math.max(this.#at[at], offset + bytes.length);
    const run = this.#runs.get(new TextDecoder().decode(frame.subarray(11, begin)));
    if (!run) return this.to.background(stream, bytes);
    this.#hear(run);
    run.take(stream, bytes);
  }

  // What was sent before it has arrived before it.
  #hear(run: Run): void {
    for (const other of this.#runs.values()) {
      [other.heard, other.doubtful] = [true, false];
      if (other === run) return;
    }
  }

  #gap(told: Told): void {
    const at = told.stream === "stdout" ? 0 : 1;
    this.#at[at] = Math.max(this.#at[at], told.to);
    const [first] = this.#runs.values();
    if (first?.heard) first.miss(told.stream, told.to - told.from);
  }

  #exit(told: Told): void {
    this.#seq = Math.max(this.#seq, told.seq);
    if (told.id === this.#fence) {
      this.#fenceOver = true;
      return;
    }
    const run = this.#runs.get(told.id ?? "");
    if (!run) return;
    this.#hear(run);
    this.#runs.delete(run.id);
    run.end(told as unknown as Ended);
  }

  #refused(told: Told): void {
    const error = new IsoletError(0, told.error, told.message, told.hint);
    const run = told.id === undefined ? undefined : this.#runs.get(told.id);
    if (told.id === undefined || told.id === this.#fence) {
      // A frame that was not understood, or a shell that takes nothing more: what has not been heard
      // of can only have been lost with it.
      for (const other of [...this.#runs.values()]) if (!other.heard) this.#fail(other, error);
      this.#fenceOver = told.id !== undefined;
    } else if (run && !run.heard) {
      // Of a signal, or of input: no end of its command.
      if (run.urged > 0 && error.code === "bad_request") run.urged--;
      else this.#fail(run, error);
    }
  }

  /** None that runs is heard to its end. */
  close(error: IsoletError): void {
    for (const run of [...this.#runs.values()]) this.#fail(run, error);
  }

  #fail(run: Run, error: IsoletError): void {
    this.#runs.delete(run.id);
    run.fail(error);
  }
}
