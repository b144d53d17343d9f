/** One command, in a session's shell or without one. */

import { IsoletError } from "./error.js";
import type { Denied } from "./network.js";
import { events } from "./sse.js";
import type { Transport } from "./transport.js";

/** How a command is to run. */
export interface ExecOptions {
  /** Ends the command after so many ms; the session's own unless told, 0 never. */
  timeout?: number;
  /** For this command alone. */
  cwd?: string;
  /** For this command alone; `undefined` unsets a name. */
  env?: Record<string, string | undefined>;
  /** Its standard input; end of file at once otherwise. */
  stdin?: string;
  /** The shell of this session, which is made where it is not there. */
  sessionId?: string;
  /** Aborting it cancels the command. */
  signal?: AbortSignal;
  /** Hear the output as it is written. */
  stream?: boolean;
  /** With `stream`: each piece of output. */
  onOutput?: (stream: "stdout" | "stderr", data: string) => void;
  /** With `stream`: its end. */
  onComplete?: (result: ExecResult) => void;
  /** With `stream`: it could not be carried out. It is thrown as well. */
  onError?: (error: Error) => void;
}

/** How a command ended, and what it said. */
export interface ExecResult {
  /** Its exit code is 0. */
  success: boolean;
  /** 128 and the signal where a signal ended it. */
  exitCode: number;
  stdout: string;
  stderr: string;
  command: string;
  /** From its start to its end, in ms. */
  duration: number;
  /** When it was sent, as ISO 8601. */
  timestamp: string;
  sessionId?: string;
  /** Its timeout ended it. */
  timedOut: boolean;
  /** Bytes that were written and are not here. */
  truncated?: { stdout: number; stderr: number };
  /** In the first answer after the sandbox slept: what that has ended. */
  lost?: string[];
  /** With `shell_state` in `lost`: sessions whose shells do not come back as they were. */
  lostState?: LostState[];
  /** What was refused to the sandbox while it ran, whoever in it has tried; at most 64. Give it to
   *  {@link Sandbox.changeNetwork} as `allowAdd` to open it. */
  denied?: Denied[];
  /** How much more was refused. */
  deniedLost?: number;
}

/** A session whose shell does not come back as it was. */
export interface LostState {
  session: string;
  why: "crash" | "too_large" | "no_answer" | "not_kept" | "not_restored";
  /** It comes back as it was then, in ms since 1970; `null`: as new. */
  saved_at_ms: number | null;
}

interface Answer {
  exit_code: number;
  timed_out: boolean;
  duration_ms: number;
  stdout?: string;
  stderr?: string;
  truncated?: { stdout_bytes: number; stderr_bytes: number } | null;
  lost?: string[] | null;
  lost_state?: LostState[] | null;
  denied?: Denied[] | null;
  denied_lost?: number | null;
}

/** What a command says, in its order; `complete` is the last. */
export type ExecEvent =
  | { type: "stdout" | "stderr"; data: string }
  | { type: "complete"; exitCode: number; result: ExecResult };

/** A command as the server takes it. */
function body(command: string, session: string | undefined, options: ExecOptions): Record<string, unknown> {
  const json: Record<string, unknown> = { command };
  if (options.timeout !== undefined) json["timeout_ms"] = options.timeout;
  if (options.cwd !== undefined) json["cwd"] = options.cwd;
  if (options.stdin !== undefined) json["stdin"] = options.stdin;
  if (options.env) json["env"] = named(options.env);
  if (session !== undefined && options.signal) json["cancel_on_close"] = true;
  return json;
}

function told(
  answer: Answer,
  said: { stdout: string; stderr: string },
  call: { command: string; timestamp: string; session: string | undefined },
): ExecResult {
  return {
    success: answer.exit_code === 0,
    exitCode: answer.exit_code,
    ...said,
    command: call.command,
    duration: answer.duration_ms,
    timestamp: call.timestamp,
    timedOut: answer.timed_out,
    ...(call.session === undefined ? {} : { sessionId: call.session }),
    ...(answer.truncated
      ? { truncated: { stdout: answer.truncated.stdout_bytes, stderr: answer.truncated.stderr_bytes } }
      : {}),
    ...(answer.lost ? { lost: answer.lost } : {}),
    ...(answer.lost_state ? { lostState: answer.lost_state } : {}),
    ...refusals(answer),
  };
}

/** What was refused meanwhile, where something was. */
export function refusals(told: {
  denied?: Denied[] | null;
  denied_lost?: number | null;
}): Pick<ExecResult, "denied" | "deniedLost"> {
  return {
    ...(told.denied ? { denied: told.denied } : {}),
    ...(told.denied_lost ? { deniedLost: told.denied_lost } : {}),
  };
}

/** Runs a command at `path`; `session` is told back. */
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
    const answer = await client.json<Answer>(path, { json, signal: options.signal });
    return told(answer, { stdout: answer.stdout ?? "", stderr: answer.stderr ?? "" }, call);
  }
  try {
    for await (const event of pieces(client, path, session, command, options)) {
      if (event.type !== "complete") options.onOutput?.(event.type, event.data);
      else {
        options.onComplete?.(event.result);
        return event.result;
      }
    }
    throw cut();
  } catch (error) {
    options.onError?.(error as Error);
    throw error;
  }
}

/** Runs a command at `path`, and gives what it says as it is written. */
export async function* pieces(
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
  const said = { stdout: "", stderr: "" };
  for await (const { event, data } of events(response.body!)) {
    const value = JSON.parse(data) as Answer & { data: string; error: string; message: string };
    if (event === "stdout" || event === "stderr") {
      said[event] += value.data;
      yield { type: event, data: value.data };
    } else if (event === "exit") {
      return yield { type: "complete", exitCode: value.exit_code, result: told(value, said, call) };
    } else if (event === "error") {
      throw new IsoletError(response.status, value.error, value.message);
    }
  }
  throw cut();
}

function cut(): IsoletError {
  return new IsoletError(0, "cut", "the connection ended before the command");
}

/** A program with its arguments, without a shell behind it that stays. */
export interface Program {
  argv: string[];
  env: Record<string, string>;
  /** Begins with the directory, environment and files of this one. */
  session: string | undefined;
  /** In ms; 0 never. */
  timeout: number;
}

/** Runs a program in the sandbox at `path`. */
export async function program(client: Transport, path: string, one: Program): Promise<ExecResult> {
  const { argv, env, session, timeout } = one;
  const call = { command: argv.join(" "), timestamp: new Date().toISOString(), session };
  const json = { argv, env, timeout_ms: timeout, ...(session === undefined ? {} : { session }) };
  const answer = await client.json<Answer>(`${path}/exec`, { json });
  return told(answer, { stdout: answer.stdout ?? "", stderr: answer.stderr ?? "" }, call);
}

/** An environment as the server takes it: `null` unsets. */
export function named(env: Record<string, string | undefined>): Record<string, string | null> {
  return Object.fromEntries(Object.entries(env).map(([name, value]) => [name, value ?? null]));
}
