/** Code contexts: interpreters that keep their variables, and what comes of a run in one. */

import type { Isolet } from "./client.js";
import { IsoletError } from "./error.js";
import { refusals } from "./exec.js";
import type { Denied } from "./network.js";
import { events } from "./sse.js";

/** What a context speaks. */
export type CodeLanguage = "python" | "javascript" | "typescript" | "bash" | "jupyter";

/** What a context is to be. */
export interface CreateContextOptions {
  /** The server makes one otherwise. */
  id?: string;
  /** `python` unless told. */
  language?: CodeLanguage;
  /**
   * A Jupyter kernel of the image by its name, for the language `jupyter`: `python3` unless told.
   * `none`: no kernel, where `python` would have the image's `ipykernel`.
   */
  kernel?: string;
  /** Where it starts; `/workspace` unless told. */
  cwd?: string;
  /** Over the sandbox's environment; `undefined` unsets. */
  envVars?: Record<string, string | undefined>;
  /** For runs that name none, in ms: 60,000 unless told; 0 is a day, the longest. */
  timeout?: number;
}

/** A context. */
export interface CodeContext {
  id: string;
  language: CodeLanguage;
  cwd: string;
  createdAt: Date;
  /** Something runs. */
  busy: boolean;
}

/** How code is to run. */
export interface RunCodeOptions {
  /** Where; a context of the language's own name unless told, which is made where it is not there. */
  context?: CodeContext | string;
  /** `python` unless told; not beside `context`. */
  language?: CodeLanguage;
  /** What `input()` and the like read; without it they fail at once. */
  stdin?: string;
  /** Interrupts the run after so many ms; the context's own unless told. */
  timeout?: number;
  /** Aborting it interrupts the run. */
  signal?: AbortSignal;
  /** Output as it is written. */
  onStdout?: (output: OutputMessage) => void;
  onStderr?: (output: OutputMessage) => void;
  /** What is shown, as it is. */
  onResult?: (result: CodeResult) => void;
  /** What ended the run, where something did. */
  onError?: (error: ExecutionError) => void;
}

/** A piece of output. */
export interface OutputMessage {
  text: string;
  /** When it came, in ms since 1970. */
  timestamp: number;
}

/** What ended a run. */
export interface ExecutionError {
  /** Its class: `ValueError`, `TypeError`, …; `ContextDied` where the interpreter ended. */
  name: string;
  message: string;
  /** Line by line. */
  traceback: string[];
}

interface Shown {
  kind: "result" | "display";
  data: Record<string, unknown>;
  metadata: Record<string, unknown>;
  cut?: Record<string, number>;
}

/** Something that a run shows, by its kinds. Pictures are in base64. */
export class CodeResult {
  /** `result`: the value of the last expression; `display`: what the code has shown. */
  readonly kind: "result" | "display";
  /** All kinds, by media type. */
  readonly data: Record<string, unknown>;
  readonly metadata: Record<string, unknown>;
  /** How large what was left out is, in bytes by media type. */
  readonly cut: Record<string, number>;

  constructor(shown: Shown) {
    this.kind = shown.kind;
    this.data = shown.data;
    this.metadata = shown.metadata;
    this.cut = shown.cut ?? {};
  }

  #text(kind: string): string | undefined {
    const value = this.data[kind];
    return value === undefined || typeof value === "string" ? value : JSON.stringify(value);
  }

  get text(): string | undefined {
    return this.#text("text/plain");
  }
  get html(): string | undefined {
    return this.#text("text/html");
  }
  get png(): string | undefined {
    return this.#text("image/png");
  }
  get jpeg(): string | undefined {
    return this.#text("image/jpeg");
  }
  get svg(): string | undefined {
    return this.#text("image/svg+xml");
  }
  get latex(): string | undefined {
    return this.#text("text/latex");
  }
  get markdown(): string | undefined {
    return this.#text("text/markdown");
  }
  get javascript(): string | undefined {
    return this.#text("application/javascript");
  }
  get json(): unknown {
    return this.data["application/json"];
  }
  /** What a library says of a chart, for pages to draw. */
  get chart(): unknown {
    const kind = Object.keys(this.data).find((name) => /^application\/vnd\.(plotly|vegalite|vega)\./.test(name));
    return kind === undefined ? undefined : this.data[kind];
  }

  /** The kinds that it has. */
  formats(): string[] {
    return Object.keys(this.data);
  }
}

/** What came of a run. */
export interface Execution {
  code: string;
  /** Output, in the pieces in which it came. */
  logs: { stdout: string[]; stderr: string[] };
  results: CodeResult[];
  error?: ExecutionError;
  /** Counts the runs of the context, from 1. */
  executionCount: number;
  /** From its beginning to its end, in ms. */
  duration: number;
  timedOut: boolean;
  interrupted: boolean;
  /** The interpreter ended with it: all variables are lost. */
  died: boolean;
  /** It ran in an interpreter that replaced one which had ended. */
  fresh: boolean;
  /** In the first answer after the sandbox slept: what that has ended. */
  lost?: string[];
  /** What was refused to the sandbox while it ran. */
  denied?: Denied[];
  /** How much more was refused. */
  deniedLost?: number;
}

/** How a run ended. */
export type ExecutionEnd = Omit<Execution, "code" | "logs" | "results" | "error">;

/** What happens in a run, in its order; `end` is the last. */
export type CodeEvent =
  | { type: "stdout"; text: string; timestamp: number }
  | { type: "stderr"; text: string; timestamp: number }
  | { type: "result"; result: CodeResult }
  | { type: "error"; error: ExecutionError }
  | { type: "end"; end: ExecutionEnd };

interface View {
  id: string;
  language: CodeLanguage;
  cwd: string;
  created_at_ms: number;
  busy: boolean;
}

const context = (view: View): CodeContext => ({
  id: view.id,
  language: view.language,
  cwd: view.cwd,
  createdAt: new Date(view.created_at_ms),
  busy: view.busy,
});

/** The path of a context. */
export function place(path: string, id: string): string {
  return `${path}/contexts/${encodeURIComponent(id)}`;
}

/** Makes one, in a session where one is named. */
export async function create(
  client: Isolet,
  path: string,
  options: CreateContextOptions,
  session?: string,
): Promise<CodeContext> {
  const json: Record<string, unknown> = {};
  if (options.id !== undefined) json["id"] = options.id;
  if (options.language !== undefined) json["language"] = options.language;
  if (options.kernel !== undefined) json["kernel"] = options.kernel;
  if (options.cwd !== undefined) json["cwd"] = options.cwd;
  if (options.timeout !== undefined) json["timeout_ms"] = options.timeout;
  if (session !== undefined) json["session"] = session;
  if (options.envVars) {
    const all = Object.entries(options.envVars);
    json["env"] = Object.fromEntries(all.map(([name, value]) => [name, value ?? null]));
  }
  return context(await client.json<View>(`${path}/contexts`, { json }));
}

/** All of a sandbox. */
export async function list(client: Isolet, path: string): Promise<CodeContext[]> {
  return (await client.json<View[]>(`${path}/contexts`)).map(context);
}

/** What happens in a run, as it happens. Who leaves early interrupts it. */
export async function* stream(
  client: Isolet,
  path: string,
  id: string,
  code: string,
  options: RunCodeOptions,
): AsyncGenerator<CodeEvent, void, undefined> {
  const json: Record<string, unknown> = { code, cancel_on_close: true };
  if (options.stdin !== undefined) json["stdin"] = options.stdin;
  if (options.timeout !== undefined) json["timeout_ms"] = options.timeout;
  const headers = { accept: "text/event-stream" };
  const response = await client.send(`${place(path, id)}/run`, { json, headers, signal: options.signal });
  for await (const { event, data } of events(response.body!)) {
    const value = JSON.parse(data);
    if (event === "stdout" || event === "stderr") {
      yield { type: event, text: value.data, timestamp: Date.now() };
    } else if (event === "result") {
      yield { type: "result", result: new CodeResult(value as Shown) };
    } else if (event === "exception") {
      yield { type: "error", error: value as ExecutionError };
    } else if (event === "end") {
      yield { type: "end", end: ended(value) };
      return;
    } else if (event === "error") {
      throw new IsoletError(response.status, value.error, value.message, value.hint);
    }
  }
  throw new IsoletError(0, "cut", "the connection ended before the run");
}

function ended(value: Record<string, unknown>): ExecutionEnd {
  return {
    executionCount: value["run"] as number,
    duration: value["duration_ms"] as number,
    timedOut: value["timed_out"] === true,
    interrupted: value["interrupted"] === true,
    died: value["died"] !== null,
    fresh: value["fresh"] === true,
    ...(value["lost"] ? { lost: value["lost"] as string[] } : {}),
    ...refusals(value as { denied?: Denied[]; denied_lost?: number }),
  };
}

/** The whole of a run, told to who listens. */
export async function gather(
  code: string,
  happens: AsyncIterable<CodeEvent>,
  options: RunCodeOptions,
): Promise<Execution> {
  const logs = { stdout: [] as string[], stderr: [] as string[] };
  const results: CodeResult[] = [];
  let error: ExecutionError | undefined;
  for await (const event of happens) {
    if (event.type === "stdout" || event.type === "stderr") {
      const { type, text, timestamp } = event;
      logs[type].push(text);
      (type === "stdout" ? options.onStdout : options.onStderr)?.({ text, timestamp });
    } else if (event.type === "result") {
      results.push(event.result);
      options.onResult?.(event.result);
    } else if (event.type === "error") {
      error = event.error;
      options.onError?.(error);
    } else {
      return { code, logs, results, ...(error ? { error } : {}), ...event.end };
    }
  }
  throw new IsoletError(0, "cut", "the connection ended before the run");
}
