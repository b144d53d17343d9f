/** Processes in the background of a sandbox. */

import { text } from "./base64.js";
import type { Isolet } from "./client.js";
import { IsoletError, gone } from "./error.js";
import { named } from "./exec.js";
import { follow } from "./process-log.js";

/** How a process is to be started. */
export interface ProcessOptions {
  /** Its id, unique in its sandbox; the server makes one otherwise. */
  processId?: string;
  /** The session whose directory and environment it begins with; made where it is not there. */
  sessionId?: string;
  /** Over the sandbox's (and the session's) environment; `undefined` unsets. */
  env?: Record<string, string | undefined>;
  /** Where it runs. */
  cwd?: string;
  /** Ends it with all it started after so many ms; 0 never. */
  timeout?: number;
  /** Its standard input stays open for {@link Process.write}. */
  stdin?: boolean;
}

/** `completed` and `failed` by its exit code; `killed` by a signal; `lost` when its sandbox slept or
 *  crashed. */
export type ProcessStatus = "running" | "completed" | "failed" | "killed" | "lost";

/** A process as the server tells of it. */
export interface ProcessView {
  id: string;
  session: string | null;
  status: "running" | "exited" | "killed" | "lost";
  command: string;
  pid: number | null;
  exit_code: number | null;
  signal: number | null;
  timed_out: boolean;
  oom: boolean;
  remains: boolean;
  stdin: boolean;
  started_at_ms: number;
  ended_at_ms: number | null;
  duration_ms: number | null;
  stdout_bytes: number;
  stderr_bytes: number;
  position: number;
  held_from: number;
}

/** What is held of a log: at most the last MiB of both streams together. */
export interface ProcessLogs {
  processId: string;
  stdout: string;
  stderr: string;
  /** Bytes that are no longer held. */
  missed: number;
}

/** A piece of a log, or its end. */
export interface LogEvent {
  type: "stdout" | "stderr" | "gap" | "exit";
  processId: string;
  /** Text of `stdout` and `stderr`; no character is ever split. */
  data: string;
  /** Of a `gap`: bytes that are no longer held. */
  missed?: number;
  /** Of the `exit`. */
  exitCode?: number;
  /** A position of the log to go on from. */
  position: number;
}

/** Where a log begins, and what ends the following of it. */
export interface FollowOptions {
  /** A position; from the beginning of what is held unless told. */
  since?: number | "now";
  signal?: AbortSignal;
}

/** A line that was waited for. */
export interface FoundLine {
  line: string;
  stream: "stdout" | "stderr";
  /** For the next wait. */
  position: number;
}

/** Which port, and what it is to answer. */
export interface WaitForPortOptions {
  /** Asked by `GET`, rather than only connected to. */
  path?: string;
  /** The status of the answer; any from 200 to 399 unless told. */
  status?: number;
  /** In ms, at most ten minutes; 30 seconds unless told. */
  timeout?: number;
}

interface Waited extends FoundLine {
  outcome: "met" | "timeout" | "ended";
  process: ProcessView;
}

/** A process as it was when it was asked for; its methods ask anew. */
export class Process {
  readonly id: string;
  readonly command: string;
  /** Inside the sandbox; `undefined` of a lost one. */
  readonly pid: number | undefined;
  readonly status: ProcessStatus;
  readonly sessionId: string | undefined;
  readonly startTime: Date;
  readonly endTime: Date | undefined;
  /** 128 and the signal where a signal ended it. */
  readonly exitCode: number | undefined;
  readonly #view: ProcessView;
  readonly #all: Processes;

  constructor(all: Processes, view: ProcessView) {
    this.#all = all;
    this.#view = view;
    this.id = view.id;
    this.command = view.command;
    this.pid = view.pid ?? undefined;
    this.status = worded(view);
    this.sessionId = view.session ?? undefined;
    this.startTime = new Date(view.started_at_ms);
    this.endTime = view.ended_at_ms === null ? undefined : new Date(view.ended_at_ms);
    this.exitCode = view.exit_code ?? undefined;
  }

  /** All that the server told. */
  get view(): ProcessView {
    return this.#view;
  }

  /** What it is at this moment. */
  async getStatus(): Promise<ProcessStatus> {
    return worded(await this.#all.view(this.id));
  }

  /** Ends it with everything it started; see {@link Processes.kill}. */
  async kill(signal?: string | number, graceMs?: number): Promise<void> {
    await this.#all.kill(this.id, signal, graceMs);
  }

  /** Sends a signal to its group, or with `all` to everything it started. */
  async signal(signal: string | number, all = false): Promise<void> {
    await this.#all.post(this.id, "signal", { signal, all });
  }

  /** Writes to its standard input; with `eof` it reads the end behind that. */
  async write(data: string | Uint8Array, options: { eof?: boolean } = {}): Promise<void> {
    const body = typeof data === "string" ? { data } : { data_b64: text(data) };
    await this.#all.post(this.id, "stdin", { ...body, eof: options.eof ?? false });
  }

  /** Nothing more comes by its standard input. */
  async closeInput(): Promise<void> {
    await this.#all.post(this.id, "stdin", { eof: true });
  }

  /** Kills it at once, and frees its id. No error where it is not there. */
  async forget(): Promise<void> {
    await this.#all.forget(this.id);
  }

  /** What is held of its log. */
  async getLogs(): Promise<ProcessLogs> {
    return this.#all.logs(this.id);
  }

  /** Its log as it grows, up to its end. */
  streamLogs(options: FollowOptions = {}): AsyncGenerator<LogEvent> {
    return this.#all.stream(this.id, options);
  }

  /** Waits for a line that holds a text or matches an expression (in the syntax of Rust's `regex`;
   *  of the flags `i`, `m` and `s` count). Throws `timeout` and `process_ended`. */
  async waitForLog(
    pattern: string | RegExp,
    options: { timeout?: number; stream?: "stdout" | "stderr"; since?: number } = {},
  ): Promise<FoundLine> {
    const { timeout, ...where } = options;
    const log = { ...where, ...(typeof pattern === "string" ? { text: pattern } : { regex: source(pattern) }) };
    const { line, stream, position } = await this.#all.wait(this.id, { log }, timeout);
    return { line, stream, position };
  }

  /** Waits until something in the sandbox takes connections on a port, or answers there. Throws
   *  `timeout` and `process_ended`. */
  async waitForPort(port: number, options: WaitForPortOptions = {}): Promise<void> {
    const { timeout, ...wish } = options;
    await this.#all.wait(this.id, { port: { port, ...wish } }, timeout);
  }

  /** Waits for its end. Throws `timeout`. */
  async waitForExit(timeout?: number): Promise<Process> {
    const waited = await this.#all.wait(this.id, { exit: true }, timeout);
    return new Process(this.#all, waited.process);
  }
}

/** The processes of one sandbox. */
export class Processes {
  /** @param ready gives the sandbox's path, once it is there. */
  constructor(
    readonly client: Isolet,
    readonly ready: () => Promise<string>,
  ) {}

  /** The path of one, or with `rest` of something of it. */
  async at(id: string, rest = ""): Promise<string> {
    return `${await this.ready()}/processes/${encodeURIComponent(id)}${rest}`;
  }

  async start(command: string | string[], options: ProcessOptions): Promise<Process> {
    const json: Record<string, unknown> = typeof command === "string" ? { command } : { argv: command };
    if (options.processId !== undefined) json["id"] = options.processId;
    if (options.sessionId !== undefined) json["session"] = options.sessionId;
    if (options.env) json["env"] = named(options.env);
    if (options.cwd !== undefined) json["cwd"] = options.cwd;
    if (options.timeout !== undefined) json["timeout_ms"] = options.timeout;
    if (options.stdin) json["stdin"] = true;
    const view = await this.client.json<ProcessView>(`${await this.ready()}/processes`, { json });
    return new Process(this, view);
  }

  async list(): Promise<Process[]> {
    const all = await this.client.json<ProcessView[]>(`${await this.ready()}/processes`);
    return all.map((view) => new Process(this, view));
  }

  async view(id: string): Promise<ProcessView> {
    return this.client.json<ProcessView>(await this.at(id));
  }

  async get(id: string): Promise<Process | null> {
    try {
      return new Process(this, await this.view(id));
    } catch (error) {
      if (error instanceof IsoletError && error.code === "no_such_process") return null;
      throw error;
    }
  }

  /** `signal` (`"SIGTERM"` unless told) to everything that it started, and after `graceMs` (5 s) the
   *  end; done when nothing is left. */
  async kill(id: string, signal?: string | number, graceMs?: number): Promise<void> {
    const json: Record<string, unknown> = {};
    if (signal !== undefined) json["signal"] = signal;
    if (graceMs !== undefined) json["grace_ms"] = graceMs;
    await this.post(id, "kill", json);
  }

  async forget(id: string): Promise<void> {
    await gone(this.client.send(await this.at(id), { method: "DELETE" }));
  }

  async post(id: string, what: string, json: unknown): Promise<void> {
    const response = await this.client.send(await this.at(id, `/${what}`), { json });
    await response.body?.cancel();
  }

  async logs(id: string): Promise<ProcessLogs> {
    const log = await this.client.json<ProcessLogs>(await this.at(id, "/logs"));
    return { processId: id, stdout: log.stdout, stderr: log.stderr, missed: log.missed };
  }

  stream(id: string, options: FollowOptions): AsyncGenerator<LogEvent> {
    return follow(this.client, id, () => this.at(id, "/logs"), options);
  }

  async wait(id: string, wish: Record<string, unknown>, timeout?: number): Promise<Waited> {
    const json = timeout === undefined ? wish : { ...wish, timeout_ms: timeout };
    const waited = await this.client.json<Waited>(await this.at(id, "/wait"), { json });
    if (waited.outcome === "met") return waited;
    if (waited.outcome === "timeout") {
      throw new IsoletError(200, "timeout", `process ${id}: not within the time`, "look at its log");
    }
    const code = waited.process.exit_code ?? "unknown";
    throw new IsoletError(200, "process_ended", `process ${id} has ended (exit ${code})`, "look at its log");
  }
}

function worded(view: ProcessView): ProcessStatus {
  if (view.status === "exited") return view.exit_code === 0 ? "completed" : "failed";
  return view.status;
}

function source(pattern: RegExp): string {
  const flags = [...pattern.flags].filter((flag) => "ims".includes(flag)).join("");
  return flags === "" ? pattern.source : `(?${flags})${pattern.source}`;
}
