/** A session: a shell that stays, with its directory and environment. */

import type { Isolet } from "./client.js";
import * as code from "./code.js";
import { type ExecEvent, type ExecOptions, type ExecResult, pieces, run } from "./exec.js";
import type { Process, Processes, ProcessOptions } from "./processes.js";
import { exports } from "./quote.js";
import { type SessionInfo, sessionInfo } from "./records.js";
import type { Shell } from "./shell.js";
import type { ShellOptions } from "./shell-options.js";
import type { Terminal } from "./terminal.js";
import type { TerminalOptions } from "./terminal-options.js";
import { Workspace } from "./workspace.js";

/** What a session is to be. */
export interface SessionOptions {
  /** The server makes one otherwise. */
  id?: string;
  /** For people; kept in its metadata. */
  name?: string;
  /** Over the sandbox's environment. */
  env?: Record<string, string>;
  /** Where its shell begins; `/workspace` unless told. */
  cwd?: string;
  /** For commands that name no timeout, in ms. */
  commandTimeoutMs?: number;
  /** What of the workspace it sees; all of it unless told. */
  fileAccess?: FileAccess;
  /** The caller's own words, at most 16 KiB as JSON. */
  metadata?: Record<string, unknown>;
  /** Its end, also in the middle of a command: `"10m"`, or seconds from now; never unless told. */
  ttl?: string | number;
}

/**
 * Paths below the workspace, without a leading slash; `""` is all of it. Writing implies reading,
 * and the session's own `.sessions/ID` is always there. What is not granted does not exist for it.
 */
export interface FileAccess {
  /** They must be there. */
  read?: string[];
  /** Made as directories where they are not there. */
  write?: string[];
}

/** What opens a session's sockets. */
export interface Doors {
  terminal(options: TerminalOptions): Terminal;
  shell(options: ShellOptions): Shell;
}

/** A session of a sandbox. It is made by its first command, where it is not there. */
export class ExecutionSession extends Workspace {
  /** Unique within the sandbox. */
  readonly id: string;
  /** The sandbox that it belongs to. */
  readonly sandboxId: string;
  protected readonly session: string;
  readonly #doors: Doors;

  /** @param ready gives the sandbox's path, once it is there. */
  constructor(
    client: Isolet,
    of: { sandbox: string; id: string },
    ready: () => Promise<string>,
    processes: Processes,
    doors: Doors,
  ) {
    super(client, async () => `${await ready()}/sessions/${encodeURIComponent(of.id)}`, ready, processes);
    this.sandboxId = of.sandbox;
    this.session = this.id = of.id;
    this.#doors = doors;
  }

  async #path(): Promise<string> {
    return `${await this.ready()}/sessions/${encodeURIComponent(this.id)}`;
  }

  /** Runs a command; directory, variables and jobs stay for the next. */
  async exec(command: string, options: Omit<ExecOptions, "sessionId"> = {}): Promise<ExecResult> {
    return run(this.client, `${await this.#path()}/exec`, this.id, command, options);
  }

  /** Runs a command, and gives what it says as it is written. Who leaves the loop early cancels it. */
  async *execStream(
    command: string,
    options: Omit<ExecOptions, "sessionId"> = {},
  ): AsyncGenerator<ExecEvent> {
    yield* pieces(this.client, `${await this.#path()}/exec`, this.id, command, options, true);
  }

  /** Its record. @throws `no_session`: no command has run in it yet, or it has ended. */
  async info(): Promise<SessionInfo> {
    return sessionInfo(await this.client.json(await this.#path()));
  }

  /** Starts a process in the background, in its directory and environment as it was made. */
  async startProcess(
    command: string | string[],
    options: Omit<ProcessOptions, "sessionId"> = {},
  ): Promise<Process> {
    return this.processes.start(command, { ...options, sessionId: this.id });
  }

  /** Attaches to its terminal, which is opened where none runs. It connects by itself. */
  terminal(options: TerminalOptions = {}): Terminal {
    return this.#doors.terminal({ ...options });
  }

  /** Its shell over one WebSocket, for many commands in sequence; it outlives the connection. */
  shell(options: Omit<ShellOptions, "sessionId"> = {}): Shell {
    return this.#doors.shell({ ...options });
  }

  /** Makes a code context with this session's directory, environment and files; it ends with the session. */
  async createCodeContext(options: code.CreateContextOptions = {}): Promise<code.CodeContext> {
    return code.create(this.client, await this.ready(), options, this.id);
  }

  /** Runs code in a context: one of this session's, or any other of the sandbox. */
  async runCode(text: string, options: InContext): Promise<code.Execution> {
    return code.gather(text, this.runCodeStream(text, options), options);
  }

  /** Runs code in a context, and gives what happens in its order. Who leaves the loop early interrupts it. */
  async *runCodeStream(text: string, options: InContext): AsyncGenerator<code.CodeEvent> {
    const id = typeof options.context === "string" ? options.context : options.context.id;
    yield* code.stream(this.client, await this.ready(), id, text, options);
  }

  /** Sets variables for all further commands of this session; `undefined` unsets. */
  async setEnvVars(vars: Record<string, string | undefined>): Promise<void> {
    await this.exec(exports(vars));
  }
}

type InContext = code.RunCodeOptions & { context: code.CodeContext | string };
