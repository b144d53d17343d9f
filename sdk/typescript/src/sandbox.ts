/** A sandbox by its id. */

import { Isolet } from "./client.js";
import * as code from "./code.js";
import { duration } from "./duration.js";
import { IsoletError } from "./error.js";
import { named, run, type ExecOptions, type ExecResult } from "./exec.js";
import { Files } from "./files.js";
import {
  type FollowOptions,
  type LogEvent,
  Process,
  Processes,
  type ProcessLogs,
  type ProcessOptions,
} from "./processes.js";
import * as ports from "./ports.js";
import { exports } from "./quote.js";
import type { Shell } from "./shell.js";
import type { ShellOptions } from "./shell-options.js";
import { shell as openShell } from "./shells.js";
import type { Terminal } from "./terminal.js";
import type { TerminalOptions } from "./terminal-options.js";
import * as terminals from "./terminals.js";
import { ExecutionSession, type SessionOptions } from "./session.js";

/** Seconds without use after which a sandbox falls asleep unless told. */
const SLEEP_AFTER_S = 600;

/** How a sandbox is to be, when the first call makes it. */
export interface SandboxOptions {
  /** Falls asleep after so long without use: `"10m"` (unless told), `"1h"`, or seconds. */
  sleepAfter?: string | number;
  /** Never falls asleep. */
  keepAlive?: boolean;
  /** Commands that name no session run in the session `default`; otherwise each by itself. */
  enableDefaultSession?: boolean;
  /** Its files outlive a sleep. */
  persistent?: boolean;
  /** Ids in lower case, so that they can be host names. */
  normalizeId?: boolean;
}

/** A sandbox; it is made by the first call that works in it. */
export class Sandbox extends Files {
  readonly id: string;
  readonly #options: SandboxOptions;
  readonly #processes: Processes;
  #made: Promise<void> | undefined;

  constructor(client: Isolet, id: string, options: SandboxOptions = {}) {
    super(client, () => this.#ready());
    this.id = options.normalizeId ? id.toLowerCase() : id;
    this.#options = options;
    this.#processes = new Processes(client, () => this.#ready());
  }

  get #path(): string {
    return `/v1/sandboxes/${encodeURIComponent(this.id)}`;
  }

  /** Its path, once it is there. */
  async #ready(): Promise<string> {
    this.#made ??= this.#make().catch((error: unknown) => {
      this.#made = undefined;
      throw error;
    });
    await this.#made;
    return this.#path;
  }

  async #make(): Promise<void> {
    const { sleepAfter, keepAlive, persistent } = this.#options;
    const json: Record<string, unknown> = { id: this.id, persistent: persistent ?? false };
    json["sleep_after_s"] = keepAlive ? 0 : duration(sleepAfter ?? SLEEP_AFTER_S);
    try {
      await this.client.send("/v1/sandboxes", { json });
    } catch (error) {
      if (!(error instanceof IsoletError && error.code === "sandbox_exists")) throw error;
    }
  }

  async #change(json: Record<string, unknown>): Promise<void> {
    await this.client.send(await this.#ready(), { method: "PATCH", json });
  }

  /** Runs a command in the session that is named, else in `default`, else by itself. */
  async exec(command: string, options: ExecOptions = {}): Promise<ExecResult> {
    const path = await this.#ready();
    const alone = options.sessionId === undefined && this.#options.enableDefaultSession === false;
    if (alone) return run(this.client, `${path}/exec`, undefined, command, options);
    const session = options.sessionId ?? "default";
    const at = `${path}/sessions/${encodeURIComponent(session)}/exec`;
    return run(this.client, at, session, command, options);
  }

  /** Starts a process in the background: a command line, or program and arguments. */
  async startProcess(command: string | string[], options: ProcessOptions = {}): Promise<Process> {
    return this.#processes.start(command, options);
  }

  /** Its processes, the oldest first: also those that have ended, and that a sleep has ended. */
  async listProcesses(): Promise<Process[]> {
    return this.#processes.list();
  }

  /** One process; `null` where there is none. */
  async getProcess(id: string): Promise<Process | null> {
    return this.#processes.get(id);
  }

  /** Ends a process with everything it started: `signal` (`"SIGTERM"` unless told), and after five
   *  seconds the end. */
  async killProcess(id: string, signal?: string | number): Promise<void> {
    await this.#processes.kill(id, signal);
  }

  /** Ends all that run; how many these were. */
  async killAllProcesses(): Promise<number> {
    const live = (await this.listProcesses()).filter((one) => one.status === "running" || one.view.remains);
    await Promise.all(live.map((one) => one.kill("SIGKILL")));
    return live.length;
  }

  /** Forgets those that have ended; how many these were. */
  async cleanupCompletedProcesses(): Promise<number> {
    const ended = (await this.listProcesses()).filter((one) => one.status !== "running" && !one.view.remains);
    const forget = async (id: string) => this.client.send(await this.#processes.at(id), { method: "DELETE" });
    await Promise.all(ended.map((one) => forget(one.id)));
    return ended.length;
  }

  /** What is held of a process's log. */
  async getProcessLogs(id: string): Promise<ProcessLogs> {
    return this.#processes.logs(id);
  }

  /** A process's log as it grows, up to its end; taken up at its byte after a lost connection. */
  streamProcessLogs(id: string, options: FollowOptions = {}): AsyncGenerator<LogEvent> {
    return this.#processes.stream(id, options);
  }

  /** Sets variables for every shell and program that starts from now on, and in the session
   *  `default` for its further commands; `undefined` unsets. */
  async setEnvVars(vars: Record<string, string | undefined>): Promise<void> {
    const command = exports(vars);
    await this.#change({ env: named(vars) });
    if (this.#options.enableDefaultSession !== false) await this.exec(command);
  }

  /** Makes a session. */
  async createSession(options: SessionOptions = {}): Promise<ExecutionSession> {
    const { id, name, env, cwd, commandTimeoutMs, fileAccess } = options;
    const json: Record<string, unknown> = {};
    if (id !== undefined) json["id"] = id;
    if (name !== undefined) json["metadata"] = { name };
    if (env) json["env"] = env;
    if (cwd !== undefined) json["cwd"] = cwd;
    if (commandTimeoutMs !== undefined) json["command_timeout_ms"] = commandTimeoutMs;
    if (fileAccess) json["file_access"] = fileAccess;
    const path = await this.#ready();
    const made = await this.client.json<{ id: string }>(`${path}/sessions`, { json });
    return this.#session(made.id);
  }

  #session(id: string): ExecutionSession {
    const terminal = (options: TerminalOptions): Terminal => this.terminal({ ...options, sessionId: id });
    const shell = (options: ShellOptions): Shell => this.shell({ ...options, sessionId: id });
    return new ExecutionSession(this.client, id, () => this.#ready(), terminal, shell, this.#processes);
  }

  /** A session by its id; where it is not there, its first command makes it. */
  async getSession(id: string): Promise<ExecutionSession> {
    return this.#session(id);
  }

  /** Ends a session and its shell. */
  async deleteSession(id: string): Promise<{ success: true; sessionId: string }> {
    if (id === "default") {
      throw new IsoletError(
        409,
        "default_session",
        "Cannot delete default session. Use sandbox.destroy() instead.",
      );
    }
    const path = await this.#ready();
    await this.client.send(`${path}/sessions/${encodeURIComponent(id)}`, { method: "DELETE" });
    return { success: true, sessionId: id };
  }

  /** Attaches to the terminal of a session (`default` unless named), which is opened where none
   *  runs. It connects by itself; listen to `state` and `data`. */
  terminal(options: TerminalOptions & { sessionId?: string } = {}): Terminal {
    const { sessionId = "default", ...rest } = options;
    return terminals.attach(this.client, this.id, sessionId, () => this.#ready(), rest);
  }

  /**
   * Opens a shell: one bash over one connection, for many commands in sequence. It connects by itself.
   * Without a session it is this client's own, and ends with {@link Shell.close} or the sandbox.
   */
  shell(options: ShellOptions = {}): Shell {
    return openShell(this.client, this.id, () => this.#ready(), options);
  }

  /** The terminals that run. */
  async listTerminals(): Promise<terminals.TerminalInfo[]> {
    return terminals.terminals(this.client, await this.#ready());
  }

  /** Hangs up a session's terminal and ends what is left of its program; no error where none runs. */
  async closeTerminal(session = "default"): Promise<void> {
    const at = `${await this.#ready()}/terminals/${encodeURIComponent(session)}`;
    await this.client.send(at, { method: "DELETE" });
  }

  /** A ticket opens one WebSocket of this sandbox in place of a key: for pages, which are not to
   *  know the key. */
  async createTicket(options: terminals.TicketOptions = {}): Promise<terminals.Ticket> {
    await this.#ready();
    return terminals.ticket(this.client, this.id, options);
  }

  /** Makes a code context: an interpreter that keeps variables and imports. */
  async createCodeContext(options: code.CreateContextOptions = {}): Promise<code.CodeContext> {
    return code.create(this.client, await this.#ready(), options);
  }

  /** Runs code, and gives what came of it. What the code does wrong is its `error`, and is not thrown. */
  async runCode(text: string, options: code.RunCodeOptions = {}): Promise<code.Execution> {
    return code.gather(text, this.runCodeStream(text, options), options);
  }

  /** Runs code, and gives what happens in its order. Who leaves the loop early interrupts the run. */
  async *runCodeStream(text: string, options: code.RunCodeOptions = {}): AsyncGenerator<code.CodeEvent> {
    const { context = options.language ?? "python" } = options;
    const id = typeof context === "string" ? context : context.id;
    yield* code.stream(this.client, await this.#ready(), id, text, options);
  }

  /** The code contexts that there are; none of a sandbox that sleeps. */
  async listCodeContexts(): Promise<code.CodeContext[]> {
    return code.list(this.client, await this.#ready());
  }

  /** Interrupts what runs in a context; whether anything did. */
  async interruptCodeContext(id: string): Promise<boolean> {
    const at = `${code.place(await this.#ready(), id)}/interrupt`;
    return (await this.client.json<{ interrupted: boolean }>(at, { method: "POST" })).interrupted;
  }

  /** Begins a context with a new interpreter. */
  async restartCodeContext(id: string): Promise<void> {
    await this.client.send(`${code.place(await this.#ready(), id)}/restart`, { method: "POST" });
  }

  /** Ends a context and all that it started; no error where there is none. */
  async deleteCodeContext(id: string): Promise<void> {
    await this.client.send(code.place(await this.#ready(), id), { method: "DELETE" });
  }

  /** What was recorded of terminals. */
  async recordings(): Promise<terminals.Recording[]> {
    return terminals.recordings(this.client, await this.#ready());
  }

  /** Begins to record a session's terminal, which runs. */
  async startRecording(session = "default"): Promise<void> {
    await this.#recording(session, "POST");
  }

  /** Ends it; the recording stays. */
  async stopRecording(session = "default"): Promise<void> {
    await this.#recording(session, "DELETE");
  }

  async #recording(session: string, method: string): Promise<void> {
    const at = `${await this.#ready()}/terminals/${encodeURIComponent(session)}/recording`;
    await this.client.send(at, { method });
  }

  /** A recording's file, also while it grows: asciicast version 2. */
  async readRecording(id: string): Promise<ReadableStream<Uint8Array>> {
    const at = `${await this.#ready()}/recordings/${encodeURIComponent(id)}`;
    return (await this.client.send(at)).body!;
  }

  /** Removes a recording. */
  async deleteRecording(id: string): Promise<void> {
    const at = `${await this.#ready()}/recordings/${encodeURIComponent(id)}`;
    await this.client.send(at, { method: "DELETE" });
  }

  /** The ports on which something listens. */
  async listPorts(): Promise<ports.ListeningPort[]> {
    return ports.listening(this.client, await this.#ready());
  }

  /** Makes a link to a port: who has its `url` has the right to that port, until its time is over. */
  async exposePort(port: number, options: ports.ExposeOptions = {}): Promise<ports.PortLink> {
    return ports.expose(this.client, await this.#ready(), port, options);
  }

  /** Ends all links to a port. */
  async unexposePort(port: number): Promise<void> {
    await ports.withdraw(this.client, await this.#ready(), port);
  }

  /** The ports that links lead to. */
  async getExposedPorts(): Promise<ports.ExposedPort[]> {
    return ports.exposed(this.client, await this.#ready());
  }

  /** Sends a request to the program on a port, by the key: the answer is the program's, whatever its
   *  status; 502 is the server's where nothing listens. */
  async fetchPort(port: number, path = "/", request: ports.PortRequest = {}): Promise<Response> {
    return ports.ask(this.client, ports.within(await this.#ready(), port, path), request);
  }

  /** Whether it never falls asleep. */
  async setKeepAlive(keepAlive: boolean): Promise<void> {
    const after = duration(this.#options.sleepAfter ?? SLEEP_AFTER_S);
    await this.#change({ sleep_after_s: keepAlive ? 0 : after });
  }

  /** Falls asleep after so long without use: `"10m"`, `"1h"`, or seconds. */
  async setSleepAfter(after: string | number): Promise<void> {
    await this.#change({ sleep_after_s: duration(after) });
  }

  /** Ends it, and all that is in it. No error where it is not there. */
  async destroy(): Promise<void> {
    this.#made = undefined;
    try {
      await this.client.send(this.#path, { method: "DELETE" });
    } catch (error) {
      if (!(error instanceof IsoletError && error.status === 404)) throw error;
    }
  }
}

/** A sandbox by its id; nothing is sent before it is used. */
export function getSandbox(client: Isolet, id: string, options: SandboxOptions = {}): Sandbox {
  return new Sandbox(client, id, options);
}
