/** Commands over HTTP. */

import { IsoletError } from "./error.js";
import type { Denied } from "./network.js";
import { events } from "./sse.js";
import type { Transport } from "./transport.js";

/** Options of a command. */
export interface ExecOptions {
  /** Time until the command is ended, in milliseconds; the session's timeout by default; 0 disables it. */
  timeout?: number;
  /** Working directory of this command only. */
  cwd?: string;
  /** Environment of this command only; `undefined` unsets a variable. */
  env?: Record<string, string | undefined>;
  /** Standard input; empty by default. */
  stdin?: string;
  /** Session to run the command in; created if needed. */
  sessionId?: string;
  /** Aborting it cancels the command. */
  signal?: AbortSignal;
  /** Stream the output to `onOutput` while the command runs. */
  stream?: boolean;
  /** Requires `stream`. Called for each piece of output. */
  onOutput?: (stream: "stdout" | "stderr", data: string) => void;
  /** Requires `stream`. Called at the end of the command. */
  onComplete?: (result: ExecResult) => void;
  /** Requires `stream`. Called if the command could not be run; the error is also thrown. */
  onError?: (error: Error) => void;
}

/** Exit status and output of a command. */
export interface ExecResult {
  /** The exit code is 0. */
  success: boolean;
  /** 128 plus the signal number if a signal ended the command. */
  exitCode: number;
  stdout: string;
  stderr: string;
  command: string;
  /** Duration in milliseconds. */
  duration: number;
  /** Start time in ISO 8601. */
  timestamp: string;
  sessionId?: string;
  /** The timeout ended the command. */
  timedOut: boolean;
  /** The shell ended with this command, as `exit` does. Absent for a program. */
  shellEnded?: boolean;
  /** Number of bytes per stream beyond the output limit. */
  truncated?: { stdout: number; stderr: number };
  /** Only in the first result after the sandbox slept: what did not survive the sleep. */
  lost?: string[];
  /** Sessions whose shell state was not fully restored; set if `lost` contains `shell_state`. */
  lostState?: LostState[];
  /**
   * Connections that the network rules denied to the sandbox while the command ran, at most 64. Pass them to
   * {@link Sandbox.changeNetwork} as `allowAdd` to allow them.
   */
  denied?: Denied[];
  /** Number of further denials that are not listed. */
  deniedLost?: number;
}

/** A session whose shell state was not fully restored after a sleep. */
export interface LostState {
  session: string;
  why: "crash" | "too_large" | "no_answer" | "not_kept" | "not_restored";
  /** Time of the restored state in milliseconds since 1970; `null`: a new shell. */
  saved_at_ms: number | null;
}

interface ResultJson {
  exit_code: number;
  timed_out: boolean;
  shell_ended?: boolean | null;
  duration_ms: number;
  stdout?: string;
  stderr?: string;
  truncated?: { stdout_bytes: number; stderr_bytes: number } | null;
  lost?: string[] | null;
  lost_state?: LostState[] | null;
  denied?: Denied[] | null;
  denied_lost?: number | null;
}

/** Events of a command, in order; `complete` is the last. */
export type ExecEvent =
  | { type: "stdout" | "stderr"; data: string }
  | { type: "complete"; exitCode: number; result: ExecResult };

/** JSON of a command. */
function body(command: string, session: string | undefined, options: ExecOptions): Record<string, unknown> {
  const json: Record<string, unknown> = { command };
  if (options.timeout !== undefined) json["timeout_ms"] = options.timeout;
  if (options.cwd !== undefined) json["cwd"] = options.cwd;
  if (options.stdin !== undefined) json["stdin"] = options.stdin;
  if (options.env) json["env"] = envToJson(options.env);
  if (session !== undefined && options.signal) json["cancel_on_close"] = true;
  return json;
}

function toResult(
  answer: ResultJson,
  output: { stdout: string; stderr: string },
  call: { command: string; timestamp: string; session: string | undefined },
): ExecResult {
  return {
    success: answer.exit_code === 0,
    exitCode: answer.exit_code,
    ...output,
    command: call.command,
    duration: answer.duration_ms,
    timestamp: call.timestamp,
    timedOut: answer.timed_out,
    ...(answer.shell_ended == null ? {} : { shellEnded: answer.shell_ended }),
    ...(call.session === undefined ? {} : { sessionId: call.session }),
    ...(answer.truncated
      ? { truncated: { stdout: answer.truncated.stdout_bytes, stderr: answer.truncated.stderr_bytes } }
      : {}),
    ...(answer.lost ? { lost: answer.lost } : {}),
    ...(answer.lost_state ? { lostState: answer.lost_state } : {}),
    ...denials(answer),
  };
}

/** Fields for denied connections, if there are any. */
export function denials(toResult: {
  denied?: Denied[] | null;
  denied_lost?: number | null;
}): Pick<ExecResult, "denied" | "deniedLost"> {
  return {
    ...(toResult.denied ? { denied: toResult.denied } : {}),
    ...(toResult.denied_lost ? { deniedLost: toResult.denied_lost } : {}),
  };
}

/** Run a command at `path` and wait for its end. `session` is copied to the result. */
export async function run(
  client: Transport,
  path: string,
  session: string | undefined,
  command: string,
  options: ExecOptions,
): Promise<ExecResult> {
  if (!options.stream) {
    const call = { command, timestamp: new Date().toISOString(), session };
    const json = body(command, session, options);
    const answer = await client.json<ResultJson>(path, { json, signal: options.signal });
    return toResult(answer, { stdout: answer.stdout ?? "", stderr: answer.stderr ?? "" }, call);
  }
  try {
    for await (const event of streamOutput(client, path, session, command, options)) {
      if (event.type !== "complete") options.onOutput?.(event.type, event.data);
      else {
        options.onComplete?.(event.result);
        return event.result;
      }
    }
    throw connectionLost();
  } catch (error) {
    options.onError?.(error as Error);
    throw error;
  }
}

/**
 * Run a command at `path` and stream its output.
 *
 * @param cancelled whether leaving the loop early cancels the command.
 */
export async function* streamOutput(
  client: Transport,
  path: string,
  session: string | undefined,
  command: string,
  options: ExecOptions,
  cancelled = false,
): AsyncGenerator<ExecEvent> {
  const call = { command, timestamp: new Date().toISOString(), session };
  const json = body(command, session, options);
  if (session !== undefined && cancelled) json["cancel_on_close"] = true;
  const headers = { accept: "text/event-stream" };
  const response = await client.send(path, { json, headers, signal: options.signal });
  const output = { stdout: "", stderr: "" };
  for await (const { event, data } of events(response.body!)) {
    const value = JSON.parse(data) as ResultJson & { data: string; error: string; message: string };
    if (event === "stdout" || event === "stderr") {
      output[event] += value.data;
      yield { type: event, data: value.data };
    } else if (event === "exit") {
      return yield { type: "complete", exitCode: value.exit_code, result: toResult(value, output, call) };
    } else if (event === "error") {
      throw new IsoletError(response.status, value.error, value.message);
    }
  }
  throw connectionLost();
}

function connectionLost(): IsoletError {
  return new IsoletError(0, "cut", "the connection was lost before the command ended");
}

/** A program that runs outside of any session's shell. */
export interface Program {
  argv: string[];
  env: Record<string, string>;
  /** Session whose directory, environment and file access it uses. */
  session: string | undefined;
  /** In milliseconds; 0 disables it. */
  timeout: number;
}

/** Run a program in the sandbox at `path`. */
export async function runProgram(client: Transport, path: string, program: Program): Promise<ExecResult> {
  const { argv, env, session, timeout } = program;
  const call = { command: argv.join(" "), timestamp: new Date().toISOString(), session };
  const json = { argv, env, timeout_ms: timeout, ...(session === undefined ? {} : { session }) };
  const answer = await client.json<ResultJson>(`${path}/exec`, { json });
  return toResult(answer, { stdout: answer.stdout ?? "", stderr: answer.stderr ?? "" }, call);
}

/** JSON of environment variables: `null` unsets one. */
export function envToJson(env: Record<string, string | undefined>): Record<string, string | null> {
  return Object.fromEntries(Object.entries(env).map(([name, value]) => [name, value ?? null]));
}
