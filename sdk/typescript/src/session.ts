/** A session: a shell that stays, with its directory and environment. */

import type { Isolet } from "./client.js";
import * as code from "./code.js";
import { run, type ExecOptions, type ExecResult } from "./exec.js";
import { Files } from "./files.js";
import type { Process, Processes, ProcessOptions } from "./processes.js";
import { exports } from "./quote.js";
import type { Shell } from "./shell.js";
import type { ShellOptions } from "./shell-options.js";
import type { Terminal } from "./terminal.js";
import type { TerminalOptions } from "./terminal-options.js";

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

/** A session of a sandbox. It is made by its first command, where it is not there. */
export class ExecutionSession extends Files {
  /** Unique within the sandbox. */
  readonly id: string;
  readonly #ready: () => Promise<string>;
  readonly #terminal: (options: TerminalOptions) => Terminal;
  readonly #shell: (options: ShellOptions) => Shell;
  readonly #processes: Processes;

  /** @param ready gives the sandbox's path, once it is there. */
  constructor(
    client: Isolet,
    id: string,
    ready: () => Promise<string>,
    terminal: (options: TerminalOptions) => Terminal,
    shell: (options: ShellOptions) => Shell,
    processes: Processes,
  ) {
    super(client, async () => `${await ready()}/sessions/${encodeURIComponent(id)}`);
    this.id = id;
    this.#ready = ready;
    this.#terminal = terminal;
    this.#shell = shell;
    this.#processes = processes;
  }

  /** Runs a command; directory, variables and jobs stay for the next. */
  async exec(command: string, options: Omit<ExecOptions, "sessionId"> = {}): Promise<ExecResult> {
    const path = `${await this.#ready()}/sessions/${encodeURIComponent(this.id)}/exec`;
    return run(this.client, path, this.id, command, options);
  }

  /** Starts a process in the background, in its directory and environment as it was made. */
  async startProcess(
    command: string | string[],
    options: Omit<ProcessOptions, "sessionId"> = {},
  ): Promise<Process> {
    return this.#processes.start(command, { ...options, sessionId: this.id });
  }

  /** The processes of its sandbox: sessions share them. */
  async listProcesses(): Promise<Process[]> {
    return this.#processes.list();
  }

  /** Attaches to its terminal, which is opened where none runs. It connects by itself. */
  terminal(options: TerminalOptions = {}): Terminal {
    return this.#terminal(options);
  }

  /** Its shell over one WebSocket, for many commands in sequence; it outlives the connection. */
  shell(options: Omit<ShellOptions, "sessionId"> = {}): Shell {
    return this.#shell(options);
  }

  /** Makes a code context with this session's directory, environment and files; it ends with the session. */
  async createCodeContext(options: code.CreateContextOptions = {}): Promise<code.CodeContext> {
    return code.create(this.client, await this.#ready(), options, this.id);
  }

  /** Runs code in a context: one of this session's, or any other of the sandbox. */
  async runCode(
    text: string,
    options: code.RunCodeOptions & { context: code.CodeContext | string },
  ): Promise<code.Execution> {
    const id = typeof options.context === "string" ? options.context : options.context.id;
    const happens = code.stream(this.client, await this.#ready(), id, text, options);
    return code.gather(text, happens, options);
  }

  /** Sets variables for all further commands of this session; `undefined` unsets. */
  async setEnvVars(vars: Record<string, string | undefined>): Promise<void> {
    await this.exec(exports(vars));
  }
}
