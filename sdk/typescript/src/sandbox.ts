/** A sandbox by its id. */

import type { Isolet } from "./client.js";
import * as code from "./code.js";
import { dial, type PortConnection } from "./dial.js";
import { duration, whole } from "./duration.js";
import { IsoletError, gone } from "./error.js";
import { type ExecEvent, type ExecOptions, type ExecResult, named, pieces, run } from "./exec.js";
import { type EventsOptions, following, type SandboxEvent } from "./happenings.js";
import { changed, type NetworkChange, type NetworkInfo } from "./network.js";
import { type Process, Processes, type ProcessOptions } from "./processes.js";
import * as ports from "./ports.js";
import { exports } from "./quote.js";
import { type SandboxInfo, sandboxInfo, type SessionInfo, sessionInfo, type SessionSent } from "./records.js";
import { ExecutionSession, type SessionOptions } from "./session.js";
import { limits, type SandboxChange, type SandboxOptions } from "./sandbox-options.js";
import type { Shell } from "./shell.js";
import type { ShellOptions } from "./shell-options.js";
import { shell as openShell } from "./shells.js";
import type { Terminal } from "./terminal.js";
import type { TerminalOptions } from "./terminal-options.js";
import * as terminals from "./terminals.js";
import { Workspace } from "./workspace.js";

/** Seconds without use after which a sandbox falls asleep unless told. */
const SLEEP_AFTER_S = 600;

/** A sandbox; it is made by the first call that works in it. */
export class Sandbox extends Workspace {
  readonly id: string;
  protected readonly session = undefined;
  readonly #options: SandboxOptions;
  #made: Promise<void> | undefined;

  constructor(client: Isolet, id: string, options: SandboxOptions = {}) {
    const ready = (): Promise<string> => this.#ready();
    super(client, ready, ready, new Processes(client, ready));
    this.id = options.normalizeId ? id.toLowerCase() : id;
    this.#options = options;
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
    const { sleepAfter, keepAlive, persistent, image, diskMib, env, network, networkProfile, credentials } = this.#options;
    const json = limits(this.#options);
    json["id"] = this.id;
    json["persistent"] = persistent ?? false;
    json["sleep_after_s"] = keepAlive ? 0 : duration(sleepAfter ?? SLEEP_AFTER_S);
    if (image !== undefined) json["image"] = image;
    if (diskMib !== undefined) json["disk_mib"] = diskMib;
    if (env) json["env"] = env;
    if (network !== undefined) json["network"] = network;
    if (networkProfile !== undefined) json["network_profile"] = networkProfile;
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

  /** Runs a command in the session that is named, else in `default`, else by itself. */
  async exec(command: string, options: ExecOptions = {}): Promise<ExecResult> {
    const { at, session } = await this.#place(options.sessionId);
    return run(this.client, at, session, command, options);
  }

  /** Runs a command, and gives what it says as it is written. Who leaves the loop early cancels it. */
  async *execStream(command: string, options: ExecOptions = {}): AsyncGenerator<ExecEvent> {
    const { at, session } = await this.#place(options.sessionId);
    yield* pieces(this.client, at, session, command, options, true);
  }

  async #place(named: string | undefined): Promise<{ at: string; session: string | undefined }> {
    const path = await this.#ready();
    const alone = named === undefined && this.#options.enableDefaultSession === false;
    if (alone) return { at: `${path}/exec`, session: undefined };
    const session = named ?? "default";
    return { at: `${path}/sessions/${encodeURIComponent(session)}/exec`, session };
  }

  /** Starts a process in the background: a command line, or program and arguments. */
  async startProcess(command: string | string[], options: ProcessOptions = {}): Promise<Process> {
    return this.processes.start(command, options);
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
    const { id, name, env, cwd, commandTimeoutMs, fileAccess, metadata, ttl } = options;
    const json: Record<string, unknown> = {};
    if (id !== undefined) json["id"] = id;
    if (name !== undefined || metadata) json["metadata"] = { ...metadata, ...(name === undefined ? {} : { name }) };
    if (env) json["env"] = env;
    if (cwd !== undefined) json["cwd"] = cwd;
    if (commandTimeoutMs !== undefined) json["command_timeout_ms"] = commandTimeoutMs;
    if (fileAccess) json["file_access"] = fileAccess;
    if (ttl !== undefined) json["ttl_s"] = whole(ttl);
    const path = await this.#ready();
    const made = await this.client.json<{ id: string }>(`${path}/sessions`, { json });
    return this.#session(made.id);
  }

  #session(id: string): ExecutionSession {
    const doors = {
      terminal: (options: TerminalOptions) => this.terminal({ ...options, sessionId: id }),
      shell: (options: ShellOptions) => this.shell({ ...options, sessionId: id }),
    };
    const ready = (): Promise<string> => this.#ready();
    return new ExecutionSession(this.client, { sandbox: this.id, id }, ready, this.processes, doors);
  }

  /** Its sessions, sorted by id, `default` among them. */
  async *listSessions(): AsyncGenerator<SessionInfo> {
    for await (const sent of this.client.pages<SessionSent>(`${await this.#ready()}/sessions`)) {
      yield sessionInfo(sent);
    }
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
    await gone(this.client.send(at, { method: "DELETE" }));
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

  /** What was recorded of terminals. */
  async recordings(): Promise<terminals.Recording[]> {
    return terminals.recordings(this.client, await this.#ready());
  }

  /** Begins to record a session's terminal, which runs. */
  async startRecording(session = "default"): Promise<void> {
    await this.#recording(session, "POST");
  }

  /** Ends it; the recording stays. No error where none grows. */
  async stopRecording(session = "default"): Promise<void> {
    await gone(this.#recording(session, "DELETE"));
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

  /** Opens a TCP connection to the program on a port, also on the sandbox's loopback alone.
   *  @throws `not_listening`. */
  async connectPort(port: number): Promise<PortConnection> {
    return dial(this.client, this.id, await this.#ready(), port);
  }

  /** Its record, and what it uses. Neither makes nor wakes it. @throws `no_sandbox`: it was not used yet,
   *  or has ended. */
  async info(): Promise<SandboxInfo> {
    return sandboxInfo(await this.client.json(this.#path));
  }

  /** Changes what is told, all of it or nothing. */
  async update(change: SandboxChange): Promise<SandboxInfo> {
    const { env, sleepAfter } = change;
    const json = limits(change);
    if (env) json["env"] = named(env);
    if (sleepAfter !== undefined) json["sleep_after_s"] = whole(sleepAfter);
    return sandboxInfo(await this.client.json(await this.#ready(), { method: "PATCH", json }));
  }

  /** Puts it to sleep now. The next call that works in it wakes it; there is no other way to.
   *  @throws `sandbox_in_use`: a command runs in it, or a client is attached. */
  async sleep(): Promise<SandboxInfo> {
    return sandboxInfo(await this.client.json(`${await this.#ready()}/sleep`, { method: "POST" }));
  }

  /** What happens to it, up to `destroyed`; comes back by itself after a lost connection, and goes on where
   *  it was. It neither makes nor wakes it. */
  events(options: EventsOptions = {}): AsyncGenerator<SandboxEvent> {
    return following(this.client, `${this.#path}/events`, options, "destroyed");
  }

  /** Where it may connect to. */
  async getNetwork(): Promise<NetworkInfo> {
    return this.client.json<NetworkInfo>(`${await this.#ready()}/network`);
  }

  /** Changes where it may connect to, also for connections that run: all of the change or nothing.
   *  `{ allowAdd: result.denied }` opens what a command was refused. */
  async changeNetwork(change: NetworkChange): Promise<NetworkInfo> {
    const at = `${await this.#ready()}/network`;
    return this.client.json<NetworkInfo>(at, { method: "PATCH", json: changed(change) });
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
    await gone(this.client.send(this.#path, { method: "DELETE" }));
  }
}

/** A sandbox by its id; nothing is sent before it is used. */
export function getSandbox(client: Isolet, id: string, options: SandboxOptions = {}): Sandbox {
  return new Sandbox(client, id, options);
}
