/** What a sandbox and its sessions can both do: files, processes, code, repositories. */

import type { Isolet } from "./client.js";
import * as code from "./code.js";
import { IsoletError, gone } from "./error.js";
import { program } from "./exec.js";
import { Files } from "./files.js";
import * as git from "./git.js";
import type { FollowOptions, LogEvent, Process, Processes, ProcessLogs } from "./processes.js";

/** A sandbox, or one of its sessions; processes and code contexts are the sandbox's, whoever asks. */
export abstract class Workspace extends Files {
  /** Gives the sandbox's path, once it is there. */
  protected readonly ready: () => Promise<string>;
  protected readonly processes: Processes;

  constructor(client: Isolet, files: () => Promise<string>, ready: () => Promise<string>, processes: Processes) {
    super(client, files);
    this.ready = ready;
    this.processes = processes;
  }

  /** The session whose directory, environment and files programs begin with. */
  protected abstract readonly session: string | undefined;

  /** The sandbox's processes, the oldest first: also those that have ended, and that a sleep has ended. */
  async listProcesses(): Promise<Process[]> {
    return this.processes.list();
  }

  /** One process; `null` where there is none. */
  async getProcess(id: string): Promise<Process | null> {
    return this.processes.get(id);
  }

  /** Ends a process with everything it started: `signal` (`"SIGTERM"` unless told), and after five
   *  seconds the end. */
  async killProcess(id: string, signal?: string | number): Promise<void> {
    await this.processes.kill(id, signal);
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
    await Promise.all(ended.map((one) => one.forget()));
    return ended.length;
  }

  /** What is held of a process's log. */
  async getProcessLogs(id: string): Promise<ProcessLogs> {
    return this.processes.logs(id);
  }

  /** A process's log as it grows, up to its end; taken up at its byte after a lost connection. */
  streamProcessLogs(id: string, options: FollowOptions = {}): AsyncGenerator<LogEvent> {
    return this.processes.stream(id, options);
  }

  /** The code contexts that there are; none of a sandbox that sleeps. */
  async listCodeContexts(): Promise<code.CodeContext[]> {
    return code.list(this.client, await this.ready());
  }

  /** Interrupts what runs in a context; whether anything did. */
  async interruptCodeContext(id: string): Promise<boolean> {
    const at = `${code.place(await this.ready(), id)}/interrupt`;
    return (await this.client.json<{ interrupted: boolean }>(at, { method: "POST" })).interrupted;
  }

  /** Begins a context with a new interpreter. */
  async restartCodeContext(id: string): Promise<void> {
    await this.client.send(`${code.place(await this.ready(), id)}/restart`, { method: "POST" });
  }

  /** Ends a context and all that it started; no error where there is none. */
  async deleteCodeContext(id: string): Promise<void> {
    await gone(this.client.send(code.place(await this.ready(), id), { method: "DELETE" }));
  }

  /**
   * Clones a repository, by the git that is inside. Credentials in an `http` or `https` address go to git by
   * its environment: none are in its arguments, its output, or the clone.
   * @throws {@link IsoletError} `git_failed` with what git said; `timeout`; `no_git`: there is none inside.
   */
  async gitCheckout(url: string, options: git.GitCheckoutOptions = {}): Promise<git.GitCheckout> {
    const timestamp = new Date().toISOString();
    const call = git.cloning(url, options);
    const { argv, env } = call;
    const { timeout = 0 } = options;
    const done = await program(this.client, await this.ready(), { argv, env, session: this.session, timeout });
    if (done.exitCode !== 0) throw git.failed(call, done.exitCode, done.stderr, done.timedOut);
    return git.cloned(call, done.stdout, timestamp);
  }

  /** Always refused as `not_supported`: the server keeps no copies of directories. */
  async createBackup(_options: BackupOptions): Promise<DirectoryBackup> {
    throw unsupported("createBackup", NO_STORE, "keep what readArchive gives, and give it to writeArchive");
  }

  /** As {@link Workspace.createBackup}. */
  async restoreBackup(_backup: DirectoryBackup): Promise<never> {
    throw unsupported("restoreBackup", NO_STORE, "keep what readArchive gives, and give it to writeArchive");
  }

  /** Always refused as `not_supported`: a sandbox has no way out, and no FUSE. */
  async mountBucket(_bucket: string, _path: string, _options?: Record<string, unknown>): Promise<never> {
    throw unsupported("mountBucket", NO_MOUNTS, "write the files instead");
  }

  /** As {@link Workspace.mountBucket}. */
  async unmountBucket(_path: string): Promise<never> {
    throw unsupported("unmountBucket", NO_MOUNTS, "");
  }
}

/** What of Cloudflare's `createBackup` programs give. */
export interface BackupOptions {
  dir: string;
  name?: string;
  /** In seconds. */
  ttl?: number;
}

/** What of theirs names a backup. */
export interface DirectoryBackup {
  id: string;
  dir: string;
}

const NO_STORE = "the server keeps no copies of directories";
const NO_MOUNTS = "buckets are not mounted: a sandbox has no way out, and no FUSE";

function unsupported(call: string, reason: string, hint: string): IsoletError {
  return new IsoletError(501, "not_supported", `${call}: ${reason}`, hint);
}
