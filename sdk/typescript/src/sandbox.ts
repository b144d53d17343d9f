/** A sandbox. */

import type { Isolet } from "./client.js";
import * as code from "./code.js";
import { dial, type PortConnection } from "./dial.js";
import { duration, wholeSeconds } from "./duration.js";
import { IsoletError, ignoreNotFound } from "./error.js";
import { type ExecEvent, type ExecOptions, type ExecResult, envToJson, streamOutput, run } from "./exec.js";
import { type EventsOptions, followEvents, type SandboxEvent } from "./sandbox-events.js";
import { networkChangeToJson, type NetworkChange, type NetworkInfo } from "./network.js";
import { type Process, Processes, type ProcessOptions } from "./processes.js";
import * as ports from "./ports.js";
import { exports } from "./quote.js";
import { type Snapshot, type SnapshotOptions, snapshotFromJson, snapshotOptions } from "./snapshots.js";
import { type RecoveredSandbox, recoveredSandbox, type RestoredSandbox, restoredSandbox, type SandboxInfo, sandboxInfo, type SessionInfo, sessionInfo, type SessionJson } from "./records.js";
import { ExecutionSession, type SessionOptions } from "./session.js";
import { limits, type SandboxChange, type SandboxOptions } from "./sandbox-options.js";
import type { Shell } from "./shell.js";
import type { ShellOptions } from "./shell-options.js";
import { attachShell } from "./open-shell.js";
import type { Terminal } from "./terminal.js";
import type { TerminalOptions } from "./terminal-options.js";
import * as terminals from "./terminals.js";
import { Workspace } from "./workspace.js";

/** Default idle time before sleep, in seconds. */
const SLEEP_AFTER_S = 600;

/**
 * A sandbox. The first call that needs it creates it.
 *
 * An idle sandbox falls asleep, and any call that needs it awake wakes it. The first command's result then
 * lists in `lost` what did not survive the sleep.
 */
export class Sandbox extends Workspace {
  /** Unique within the tenant. */
  readonly id: string;
  protected readonly session = undefined;
  readonly #options: SandboxOptions;
  #created: Promise<void> | undefined;

  constructor(client: Isolet, id: string, options: SandboxOptions = {}) {
    const ready = (): Promise<string> => this.#ready();
    super(client, ready, ready, new Processes(client, ready));
    this.id = options.normalizeId ? id.toLowerCase() : id;
    this.#options = options;
  }

  get #path(): string {
    return `/v1/sandboxes/${encodeURIComponent(this.id)}`;
  }

  /** Create the sandbox if needed, and return its URL path. */
  async #ready(): Promise<string> {
    this.#created ??= this.#create().catch((error: unknown) => {
      this.#created = undefined;
      throw error;
    });
    await this.#created;
    return this.#path;
  }

  async #create(): Promise<void> {
    const { sleepAfter, keepAlive, persistent, image, diskMib, env, network, networkProfile, credentials } = this.#options;
    const { snapshot, region, labels } = this.#options;
    const json = limits(this.#options);
    json["id"] = this.id;
    if (snapshot !== undefined) json["snapshot"] = snapshot;
    if (snapshot === undefined || persistent !== undefined) json["persistent"] = persistent ?? false;
    if (snapshot === undefined || keepAlive || sleepAfter !== undefined) {
      json["sleep_after_s"] = keepAlive ? 0 : duration(sleepAfter ?? SLEEP_AFTER_S);
    }
    if (image !== undefined) json["image"] = image;
    if (diskMib !== undefined) json["disk_mib"] = diskMib;
    if (env) json["env"] = env;
    if (network !== undefined) json["network"] = network;
    if (networkProfile !== undefined) json["network_profile"] = networkProfile;
    if (region !== undefined) json["region"] = region;
    if (labels) json["labels"] = labels;
    if (credentials !== undefined) json["credentials"] = credentials;
    try {
      await this.client.send("/v1/sandboxes", { json });
    } catch (error) {
      if (!(error instanceof IsoletError && error.code === "sandbox_exists")) throw error;
    }
  }

  async #change(json: Record<string, unknown>): Promise<void> {
    await this.client.send(await this.#ready(), { method: "PATCH", json });
  }

  /**
   * Run a command and wait for its end: in the session `sessionId`, or in `default`, or as a separate process
   * if `enableDefaultSession` is false. A session keeps working directory, variables, functions and background
   * jobs for the next command. A nonzero exit code does not throw.
   *
   * @param command shell command, at most 1 MiB.
   * @param options timeout, directory, environment, input and streaming.
   * @returns exit status and output.
   * @throws {@link IsoletError} for example `bad_cwd` or `queue_full`.
   * @example
   * ```ts
   * const { exitCode, stdout } = await sandbox.exec("make test", { timeout: 300_000 });
   * ```
   */
  async exec(command: string, options: ExecOptions = {}): Promise<ExecResult> {
    const { at, session } = await this.#execTarget(options.sessionId);
    return run(this.client, at, session, command, options);
  }

  /**
   * Run a command and stream its output. Leaving the loop early cancels it.
   *
   * @example
   * ```ts
   * for await (const event of sandbox.execStream("make")) {
   *   if (event.type !== "complete") process[event.type].write(event.data);
   * }
   * ```
   */
  async *execStream(command: string, options: ExecOptions = {}): AsyncGenerator<ExecEvent> {
    const { at, session } = await this.#execTarget(options.sessionId);
    yield* streamOutput(this.client, at, session, command, options, true);
  }

  async #execTarget(sessionId: string | undefined): Promise<{ at: string; session: string | undefined }> {
    const path = await this.#ready();
    const alone = sessionId === undefined && this.#options.enableDefaultSession === false;
    if (alone) return { at: `${path}/exec`, session: undefined };
    const session = sessionId ?? "default";
    return { at: `${path}/sessions/${encodeURIComponent(session)}/exec`, session };
  }

  /**
   * Start a process in the background.
   *
   * @param command shell command, or program and arguments.
   * @param options id, session, directory, environment, input and timeout.
   */
  async startProcess(command: string | string[], options: ProcessOptions = {}): Promise<Process> {
    return this.processes.start(command, options);
  }

  /**
   * Set environment variables for all shells and programs that start later, and for the session `default`;
   * `undefined` unsets a variable.
   */
  async setEnvVars(vars: Record<string, string | undefined>): Promise<void> {
    const command = exports(vars);
    await this.#change({ env: envToJson(vars) });
    if (this.#options.enableDefaultSession !== false) await this.exec(command);
  }

  /**
   * Create a session.
   *
   * @param options id, directory, environment, timeout, file access and lifetime.
   * @throws {@link IsoletError} `session_exists`.
   */
  async createSession(options: SessionOptions = {}): Promise<ExecutionSession> {
    const { id, name, env, cwd, commandTimeoutMs, fileAccess, metadata, ttl } = options;
    const json: Record<string, unknown> = {};
    if (id !== undefined) json["id"] = id;
    if (name !== undefined || metadata) json["metadata"] = { ...metadata, ...(name === undefined ? {} : { name }) };
    if (env) json["env"] = env;
    if (cwd !== undefined) json["cwd"] = cwd;
    if (commandTimeoutMs !== undefined) json["command_timeout_ms"] = commandTimeoutMs;
    if (fileAccess) json["file_access"] = fileAccess;
    if (ttl !== undefined) json["ttl_s"] = wholeSeconds(ttl);
    const path = await this.#ready();
    const made = await this.client.json<{ id: string }>(`${path}/sessions`, { json });
    return this.#session(made.id);
  }

  #session(id: string): ExecutionSession {
    const connector = {
      terminal: (options: TerminalOptions) => this.terminal({ ...options, sessionId: id }),
      shell: (options: ShellOptions) => this.shell({ ...options, sessionId: id }),
    };
    const ready = (): Promise<string> => this.#ready();
    return new ExecutionSession(this.client, { sandbox: this.id, id }, ready, this.processes, connector);
  }

  /** Iterate over the sandbox's sessions, sorted by id, including `default`. */
  async *listSessions(): AsyncGenerator<SessionInfo> {
    for await (const sent of this.client.pages<SessionJson>(`${await this.#ready()}/sessions`)) {
      yield sessionInfo(sent);
    }
  }

  /** Get a session by id, without a request. Its first command creates it if it does not exist. */
  async getSession(id: string): Promise<ExecutionSession> {
    return this.#session(id);
  }

  /**
   * Delete a session and its shell.
   *
   * @throws {@link IsoletError} `no_session`, or `default_session`: the default session cannot be deleted.
   */
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

  /**
   * Attach to a session's terminal (`default` by default). If none is running, attaching opens one. The
   * connection is opened in the background; listen to `state` and `data`.
   *
   * @example
   * ```ts
   * const terminal = sandbox.terminal({ cols: 120, rows: 30 });
   * terminal.on("data", (bytes) => process.stdout.write(bytes));
   * terminal.write("git status\n");
   * ```
   */
  terminal(options: TerminalOptions & { sessionId?: string } = {}): Terminal {
    const { sessionId = "default", ...rest } = options;
    return terminals.attach(this.client, this.id, sessionId, () => this.#ready(), rest);
  }

  /**
   * Open a shell: one bash over one WebSocket, for many commands in sequence. The connection is opened in the
   * background. Without a session, the shell is private to this client and ends with {@link Shell.close} or
   * the sandbox.
   *
   * @example
   * ```ts
   * const shell = sandbox.shell();
   * await shell.run("cd /tmp");
   * console.log((await shell.run("pwd")).stdout);
   * shell.close();
   * ```
   */
  shell(options: ShellOptions = {}): Shell {
    return attachShell(this.client, this.id, () => this.#ready(), options);
  }

  /** List running terminals. */
  async listTerminals(): Promise<terminals.TerminalInfo[]> {
    return terminals.terminals(this.client, await this.#ready());
  }

  /** Close a session's terminal and kill its program. No error if none is running. */
  async closeTerminal(session = "default"): Promise<void> {
    const at = `${await this.#ready()}/terminals/${encodeURIComponent(session)}`;
    await ignoreNotFound(this.client.send(at, { method: "DELETE" }));
  }

  /**
   * Create a ticket that opens one WebSocket of this sandbox once, instead of a key. Tickets are for web
   * pages, which must not know the key.
   */
  async createTicket(options: terminals.TicketOptions = {}): Promise<terminals.Ticket> {
    await this.#ready();
    return terminals.ticket(this.client, this.id, options);
  }

  /** Create a code context: an interpreter with persistent variables and imports. */
  async createCodeContext(options: code.CreateContextOptions = {}): Promise<code.CodeContext> {
    return code.create(this.client, await this.#ready(), options);
  }

  /**
   * Run code and wait for its end. An exception in the code is returned in `error`, not thrown.
   *
   * @param text source code, at most 1 MiB.
   * @param options context or language, input, timeout and callbacks.
   * @example
   * ```ts
   * const { results } = await sandbox.runCode("1 + 1");
   * console.log(results[0]?.text);
   * ```
   */
  async runCode(text: string, options: code.RunCodeOptions = {}): Promise<code.Execution> {
    return code.collect(text, this.runCodeStream(text, options), options);
  }

  /** Run code and stream its events. Leaving the loop early interrupts the run. */
  async *runCodeStream(text: string, options: code.RunCodeOptions = {}): AsyncGenerator<code.CodeEvent> {
    const { context = options.language ?? "python" } = options;
    const id = typeof context === "string" ? context : context.id;
    yield* code.stream(this.client, await this.#ready(), id, text, options);
  }

  /** List terminal recordings. */
  async recordings(): Promise<terminals.Recording[]> {
    return terminals.recordings(this.client, await this.#ready());
  }

  /**
   * Record a session's running terminal.
   *
   * @throws {@link IsoletError} `no_terminal`: no terminal is running.
   */
  async startRecording(session = "default"): Promise<void> {
    await this.#recording(session, "POST");
  }

  /** Stop recording; the recording is preserved. No error if none is active. */
  async stopRecording(session = "default"): Promise<void> {
    await ignoreNotFound(this.#recording(session, "DELETE"));
  }

  async #recording(session: string, method: string): Promise<void> {
    const at = `${await this.#ready()}/terminals/${encodeURIComponent(session)}/recording`;
    await this.client.send(at, { method });
  }

  /** Stream a recording in asciicast version 2, also while it is being recorded. */
  async readRecording(id: string): Promise<ReadableStream<Uint8Array>> {
    const at = `${await this.#ready()}/recordings/${encodeURIComponent(id)}`;
    return (await this.client.send(at)).body!;
  }

  /** Delete a recording. */
  async deleteRecording(id: string): Promise<void> {
    const at = `${await this.#ready()}/recordings/${encodeURIComponent(id)}`;
    await this.client.send(at, { method: "DELETE" });
  }

  /** List ports on which programs listen. */
  async listPorts(): Promise<ports.ListeningPort[]> {
    return ports.listPorts(this.client, await this.#ready());
  }

  /**
   * Create a signed link to a port. Everyone who has its `url` may use the port until the link expires.
   *
   * @param port 1 to 65535. A program may start to listen later.
   * @param options name and lifetime.
   */
  async exposePort(port: number, options: ports.ExposeOptions = {}): Promise<ports.PortLink> {
    return ports.expose(this.client, await this.#ready(), port, options);
  }

  /**
   * Revoke all links to a port.
   *
   * @throws {@link IsoletError} `no_link`: the port has no links.
   */
  async unexposePort(port: number): Promise<void> {
    await ports.unexpose(this.client, await this.#ready(), port);
  }

  /** List ports that have links. */
  async getExposedPorts(): Promise<ports.ExposedPort[]> {
    return ports.listExposedPorts(this.client, await this.#ready());
  }

  /**
   * Send an HTTP request to the program on a port.
   *
   * @param port 1 to 65535; the program may listen on the sandbox's loopback only.
   * @param path path and query.
   * @param request method, headers and body; the program never receives the API key.
   * @returns the program's response, whatever its status. If no program listens on the port, the server
   *   answers with 502.
   */
  async fetchPort(port: number, path = "/", request: ports.PortRequest = {}): Promise<Response> {
    return ports.requestPort(this.client, ports.portPath(await this.#ready(), port, path), request);
  }

  /**
   * Open a TCP connection to the program on a port, including ports that are bound to the sandbox's loopback
   * only.
   *
   * @throws {@link IsoletError} `not_listening`: no program listens on the port.
   */
  async connectPort(port: number): Promise<PortConnection> {
    return dial(this.client, this.id, await this.#ready(), port);
  }

  /**
   * Read configuration, state and resource usage. Neither creates nor wakes the sandbox.
   *
   * @throws {@link IsoletError} `no_sandbox`: it was not used yet, or was deleted.
   */
  async info(): Promise<SandboxInfo> {
    return sandboxInfo(await this.client.json(this.#path));
  }

  /**
   * Change limits, environment and metadata atomically.
   *
   * @returns the new configuration.
   */
  async update(change: SandboxChange): Promise<SandboxInfo> {
    const { env, sleepAfter } = change;
    const json = limits(change);
    if (env) json["env"] = envToJson(env);
    if (sleepAfter !== undefined) json["sleep_after_s"] = wholeSeconds(sleepAfter);
    return sandboxInfo(await this.client.json(await this.#ready(), { method: "PATCH", json }));
  }

  /**
   * Put the sandbox to sleep now. The next call that needs it awake wakes it.
   *
   * @param options `force`: sleep although commands run or clients are attached. What runs is killed, and
   *   calls that wait for it throw `sandbox_slept`.
   * @throws {@link IsoletError} `sandbox_in_use`: a command is running or a client is attached.
   */
  async sleep(options: { force?: boolean } = {}): Promise<SandboxInfo> {
    const query = options.force ? "?force=1" : "";
    return sandboxInfo(await this.client.json(`${await this.#ready()}/sleep${query}`, { method: "POST" }));
  }

  /**
   * Take a snapshot: the current files and state of the shells, without processes, terminals and
   * credentials.
   *
   * @throws {@link IsoletError} `snapshot_exists`: the name is taken.
   */
  async snapshot(options: SnapshotOptions = {}): Promise<Snapshot> {
    const headers = { "idempotency-key": crypto.randomUUID() };
    const json = snapshotOptions(options);
    return snapshotFromJson(await this.client.json(`${await this.#ready()}/snapshots`, { json, headers }));
  }

  /**
   * Replace the files, sessions, shell state, image and environment by those of a snapshot. The id, links, network,
   * limits and metadata stay. What runs is ended, and listed in `lost`. If it fails, nothing is changed.
   *
   * @param snapshot id or name, also of a snapshot of another sandbox with the same `disk_mib`.
   * @throws {@link IsoletError} `no_snapshot`; `snapshot_incompatible`.
   */
  async restore(snapshot: string): Promise<RestoredSandbox> {
    const headers = { "idempotency-key": crypto.randomUUID() };
    const path = `${await this.#ready()}/restore`;
    return restoredSandbox(await this.client.json(path, { json: { snapshot }, headers }));
  }

  /**
   * Create copies of the sandbox, all or none: its files, sessions, shell state, settings and credentials, without
   * processes and terminals.
   *
   * @param count 1 to 100.
   */
  async fork(count = 1): Promise<Sandbox[]> {
    const headers = { "idempotency-key": crypto.randomUUID() };
    const path = `${await this.#ready()}/fork`;
    const { forks } = await this.client.json<{ forks: { id: string }[] }>(path, { json: { count }, headers });
    return forks.map(({ id }) => getSandbox(this.client, id));
  }

  /**
   * Move the sandbox to another node of the fleet, with its files and the state of its shells. Waits for the end of
   * the move. Never creates a sandbox.
   *
   * @param to the name of a node, or a region in which placement chooses the node.
   * @throws {@link IsoletError} `no_sandbox`, `not_a_fleet`, `no_snapshot_store`.
   */
  async move(to: { node: string } | { region: string }): Promise<SandboxInfo> {
    return sandboxInfo(await this.client.json(`${this.#path}/move`, { method: "POST", json: to }));
  }

  /**
   * Freeze all processes of the sandbox. They keep their memory, and timeouts do not count the pause. Calls that
   * work in the sandbox fail with `sandbox_paused`, or resume it if `autoResume` is set. Never creates one.
   *
   * @throws {@link IsoletError} `sandbox_sleeping`; `not_paused`: a process did not stop, and all continue.
   */
  async pause(): Promise<SandboxInfo> {
    return sandboxInfo(await this.client.json(`${this.#path}/pause`, { method: "POST" }));
  }

  /** Let the processes of a paused sandbox continue. A running or sleeping sandbox stays as it is. */
  async resume(): Promise<SandboxInfo> {
    return sandboxInfo(await this.client.json(`${this.#path}/resume`, { method: "POST" }));
  }

  /**
   * Subscribe to events of this sandbox, until `destroyed`. Reconnects after a lost connection. Neither
   * creates nor wakes the sandbox.
   */
  events(options: EventsOptions = {}): AsyncGenerator<SandboxEvent> {
    return followEvents(this.client, `${this.#path}/events`, options, "destroyed");
  }

  /** Read the network configuration. */
  async getNetwork(): Promise<NetworkInfo> {
    return this.client.json<NetworkInfo>(`${await this.#ready()}/network`);
  }

  /**
   * Change network rules and credentials atomically. The new rules apply at once: open connections that they
   * forbid are closed.
   *
   * @example
   * ```ts
   * const result = await sandbox.exec("curl -sS https://example.com");
   * await sandbox.changeNetwork({ allowAdd: result.denied ?? [] });
   * ```
   */
  async changeNetwork(change: NetworkChange): Promise<NetworkInfo> {
    const at = `${await this.#ready()}/network`;
    return this.client.json<NetworkInfo>(at, { method: "PATCH", json: networkChangeToJson(change) });
  }

  /**
   * Make a failed sandbox `sleeping`, with its files and the saved state of its shells. The next call that
   * needs it awake wakes it. A sandbox that has not failed stays as it is; never creates one.
   *
   * @throws {IsoletError} `sandbox_failed`: the sandbox is not persistent; `sandbox_in_use`: a call is reading
   *   its files; `no_sandbox`.
   */
  async recover(): Promise<RecoveredSandbox> {
    return recoveredSandbox(await this.client.json(`${this.#path}/recover`, { method: "POST" }));
  }

  /** Disable or enable sleep. */
  async setKeepAlive(keepAlive: boolean): Promise<void> {
    const after = duration(this.#options.sleepAfter ?? SLEEP_AFTER_S);
    await this.#change({ sleep_after_s: keepAlive ? 0 : after });
  }

  /** Set the idle time before sleep: `"10m"`, `"1h"`, or seconds. */
  async setSleepAfter(after: string | number): Promise<void> {
    await this.#change({ sleep_after_s: duration(after) });
  }

  /**
   * Delete the sandbox and everything in it. No error if it does not exist.
   *
   * @param options `force`: take no snapshot before, also with `snapshotOnDestroy`.
   * @returns the id of the snapshot that `snapshotOnDestroy` took; `undefined` without one.
   * @throws {@link IsoletError} the snapshot failed, and the sandbox is not deleted.
   */
  async destroy({ force = false }: { force?: boolean } = {}): Promise<string | undefined> {
    this.#created = undefined;
    const path = force ? `${this.#path}?force=true` : this.#path;
    try {
      return (await this.client.json<{ snapshot?: string }>(path, { method: "DELETE" })).snapshot;
    } catch (error) {
      if (error instanceof IsoletError && error.status === 404) return undefined;
      throw error;
    }
  }
}

/**
 * Get a sandbox by id, without a request. Its first use creates it.
 *
 * @param client the client.
 * @param id unique within the tenant.
 * @param options used when the sandbox is created.
 */
export function getSandbox(client: Isolet, id: string, options: SandboxOptions = {}): Sandbox {
  return new Sandbox(client, id, options);
}
