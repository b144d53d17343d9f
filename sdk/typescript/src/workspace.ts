/** Methods that sandboxes and sessions share: files, processes, code and git. */

import type { Isolet } from "./client.js";
import * as code from "./code.js";
import { IsoletError, ignoreNotFound } from "./error.js";
import { runProgram } from "./exec.js";
import { Files } from "./files.js";
import * as git from "./git.js";
import type { FollowOptions, LogEvent, Process, Processes, ProcessLogs } from "./processes.js";

/** A sandbox or session. Processes and code contexts belong to the sandbox. */
export abstract class Workspace extends Files {
  /** Returns the sandbox's URL path, after creating it if needed. */
  protected readonly ready: () => Promise<string>;
  protected readonly processes: Processes;

  constructor(client: Isolet, files: () => Promise<string>, ready: () => Promise<string>, processes: Processes) {
    super(client, files);
    this.ready = ready;
    this.processes = processes;
  }

  /** Session whose directory, environment and file access programs use. */
  protected abstract readonly session: string | undefined;

  /** List the sandbox's processes, oldest first, including those that have ended. */
  async listProcesses(): Promise<Process[]> {
    return this.processes.list();
  }

  /** Get a process, or `null` if it does not exist. */
  async getProcess(id: string): Promise<Process | null> {
    return this.processes.get(id);
  }

  /**
   * End a process and everything it started.
   *
   * @param id id of the process.
   * @param signal first signal; `SIGTERM` by default. After five seconds, remaining processes are killed.
   */
  async killProcess(id: string, signal?: string | number): Promise<void> {
    await this.processes.kill(id, signal);
  }

  /**
   * Kill all running processes.
   *
   * @returns their number.
   */
  async killAllProcesses(): Promise<number> {
    const live = (await this.listProcesses()).filter(({ status, view }) => status === "running" || view.remains);
    await Promise.all(live.map((process) => process.kill("SIGKILL")));
    return live.length;
  }

  /**
   * Delete the records of ended processes.
   *
   * @returns their number.
   */
  async cleanupCompletedProcesses(): Promise<number> {
    const ended = (await this.listProcesses()).filter(({ status, view }) => status !== "running" && !view.remains);
    await Promise.all(ended.map((process) => process.forget()));
    return ended.length;
  }

  /** Read the log of a process. */
  async getProcessLogs(id: string): Promise<ProcessLogs> {
    return this.processes.logs(id);
  }

  /**
   * Stream the log of a process until it ends. Reconnects after a lost connection and continues at the same
   * byte.
   */
  streamProcessLogs(id: string, options: FollowOptions = {}): AsyncGenerator<LogEvent> {
    return this.processes.stream(id, options);
  }

  /** List code contexts. The list is empty while the sandbox sleeps. */
  async listCodeContexts(): Promise<code.CodeContext[]> {
    return code.list(this.client, await this.ready());
  }

  /**
   * Interrupt the current run of a context.
   *
   * @returns whether code was running.
   */
  async interruptCodeContext(id: string): Promise<boolean> {
    const at = `${code.contextPath(await this.ready(), id)}/interrupt`;
    return (await this.client.json<{ interrupted: boolean }>(at, { method: "POST" })).interrupted;
  }

  /** Start a new interpreter in a context; all variables are lost. */
  async restartCodeContext(id: string): Promise<void> {
    await this.client.send(`${code.contextPath(await this.ready(), id)}/restart`, { method: "POST" });
  }

  /** Delete a context and kill its processes. No error if it does not exist. */
  async deleteCodeContext(id: string): Promise<void> {
    await ignoreNotFound(this.client.send(code.contextPath(await this.ready(), id), { method: "DELETE" }));
  }

  /**
   * Clone a repository with the git in the sandbox. Credentials in an `http` or `https` address are passed to
   * git through its environment; they do not appear in its arguments, its output or the clone.
   *
   * @param url address as for `git clone`.
   * @param options branch, directory, depth and timeout.
   * @throws {@link IsoletError} `git_failed` with git's output, `timeout`, or `no_git` if the image has no
   *   git.
   */
  async gitCheckout(url: string, options: git.GitCheckoutOptions = {}): Promise<git.GitCheckout> {
    const timestamp = new Date().toISOString();
    const call = git.cloneCall(url, options);
    const { argv, env } = call;
    const { timeout = 0 } = options;
    const done = await runProgram(this.client, await this.ready(), { argv, env, session: this.session, timeout });
    if (done.exitCode !== 0) throw git.cloneError(call, done.exitCode, done.stderr, done.timedOut);
    return git.checkoutFromOutput(call, done.stdout, timestamp);
  }

  /**
   * Not supported; exists for compatibility.
   *
   * @throws {@link IsoletError} `not_supported`.
   */
  async createBackup(_options: BackupOptions): Promise<DirectoryBackup> {
    throw unsupported("createBackup", NO_STORE, "use readArchive and writeArchive");
  }

  /**
   * Not supported; exists for compatibility.
   *
   * @throws {@link IsoletError} `not_supported`.
   */
  async restoreBackup(_backup: DirectoryBackup): Promise<never> {
    throw unsupported("restoreBackup", NO_STORE, "use readArchive and writeArchive");
  }

  /**
   * Not supported; exists for compatibility.
   *
   * @throws {@link IsoletError} `not_supported`.
   */
  async mountBucket(_bucket: string, _path: string, _options?: Record<string, unknown>): Promise<never> {
    throw unsupported("mountBucket", NO_MOUNTS, "write the files instead");
  }

  /**
   * Not supported; exists for compatibility.
   *
   * @throws {@link IsoletError} `not_supported`.
   */
  async unmountBucket(_path: string): Promise<never> {
    throw unsupported("unmountBucket", NO_MOUNTS, "");
  }
}

/** Options of Cloudflare's `createBackup`. */
export interface BackupOptions {
  dir: string;
  name?: string;
  /** In seconds. */
  ttl?: number;
}

/** Identifies a backup of Cloudflare's `createBackup`. */
export interface DirectoryBackup {
  id: string;
  dir: string;
}

const NO_STORE = "the server does not store backups of directories";
const NO_MOUNTS = "Isolet cannot mount buckets: sandboxes have no FUSE";

function unsupported(call: string, reason: string, hint: string): IsoletError {
  return new IsoletError(501, "not_supported", `${call}: ${reason}`, hint);
}
