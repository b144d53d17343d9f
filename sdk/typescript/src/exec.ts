/** One command, in a session's shell or without one. */

import type { Isolet } from "./client.js";
import { IsoletError } from "./error.js";
import { events } from "./sse.js";

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
}

/** Runs a command at `path`; `session` is told back. */
export async function run(
  client: Isolet,
  path: string,
  session: string | undefined,
  command: string,
  options: ExecOptions,
): Promise<ExecResult> {
  const timestamp = new Date().toISOString();
  const json: Record<string, unknown> = { command };
  if (options.timeout !== undefined) json["timeout_ms"] = options.timeout;
  if (options.cwd !== undefined) json["cwd"] = options.cwd;
  if (options.stdin !== undefined) json["stdin"] = options.stdin;
  if (options.env) json["env"] = named(options.env);
  if (session !== undefined && options.signal) json["cancel_on_close"] = true;
  const told = (answer: Answer, stdout: string, stderr: string): ExecResult => ({
    success: answer.exit_code === 0,
    exitCode: answer.exit_code,
    stdout,
    stderr,
    command,
    duration: answer.duration_ms,
    timestamp,
    timedOut: answer.timed_out,
    ...(session === undefined ? {} : { sessionId: session }),
    ...(answer.truncated
      ? { truncated: { stdout: answer.truncated.stdout_bytes, stderr: answer.truncated.stderr_bytes } }
      : {}),
    ...(answer.lost ? { lost: answer.lost } : {}),
    ...(answer.lost_state ? { lostState: answer.lost_state } : {}),
  });
  if (!options.stream) {
    const answer = await client.json<Answer>(path, { json, signal: options.signal });
    return told(answer, answer.stdout ?? "", answer.stderr ?? "");
  }
  try {
    const headers = { accept: "text/event-stream" };
    const response = await client.send(path, { json, headers, signal: options.signal });
    const said = { stdout: "", stderr: "" };
    for await (const { event, data } of events(response.body!)) {
      const value = JSON.parse(data) as Answer & { data: string; error: string; message: string };
      if (event === "stdout" || event === "stderr") {
        said[event] += value.data;
        options.onOutput?.(event, value.data);
      } else if (event === "exit") {
        const result = told(value, said.stdout, said.stderr);
        options.onComplete?.(result);
        return result;
      } else if (event === "error") {
        throw new IsoletError(response.status, value.error, value.message);
      }
    }
    throw new IsoletError(0, "cut", "the connection ended before the command");
  } catch (error) {
    options.onError?.(error as Error);
    throw error;
  }
}

/** An environment as the server takes it: `null` unsets. */
export function named(env: Record<string, string | undefined>): Record<string, string | null> {
  return Object.fromEntries(Object.entries(env).map(([name, value]) => [name, value ?? null]));
}
