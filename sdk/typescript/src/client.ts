/** A client of one server: its sandboxes, sessions that are found by their ids alone, and what happened. */

import { entries, type AuditEntry } from "./audit.js";
import { whole } from "./duration.js";
import { following, type EventsOptions, type SandboxEvent } from "./happenings.js";
import { type SandboxInfo, type SandboxSent, sandboxInfo } from "./records.js";
import { getSandbox, type Sandbox } from "./sandbox.js";
import type { SandboxOptions } from "./sandbox-options.js";
import type { ExecutionSession } from "./session.js";
import { record, type TenantSession, type TenantSessionOptions, type TenantSessionSent } from "./tenant.js";
import { Transport } from "./transport.js";

/** What the caller's sandboxes have used since they were first made, also those that are gone. */
export interface AccountUsage {
  /** Sandboxes that are there. */
  activeSandboxes: number;
  /** Sandboxes that have ended. */
  endedSandboxes: number;
  /** Processor time of all, in seconds. */
  cpuSeconds: number;
  /** Memory that they might use, in MiB, times how long they were awake, in seconds. */
  memoryMibSeconds: number;
  asOf: Date;
}

/** A client of one server. Holds no connection of its own. */
export class Isolet extends Transport {
  /** A sandbox by its id; nothing is sent before it is used. The same as `getSandbox`. */
  sandbox(id: string, options: SandboxOptions = {}): Sandbox {
    return getSandbox(this, id, options);
  }

  /** All sandboxes of the key's tenant, sorted by id. */
  async *listSandboxes(): AsyncGenerator<SandboxInfo> {
    for await (const sent of this.pages<SandboxSent>("/v1/sandboxes")) yield sandboxInfo(sent);
  }

  /** Makes a session that is found again by its id alone, whichever sandbox it is in. */
  async createSession(options: TenantSessionOptions = {}): Promise<ExecutionSession> {
    const { persistent, sandbox, fileAccess, metadata, ttl } = options;
    const json: Record<string, unknown> = {};
    if (persistent !== undefined) json["persistent"] = persistent;
    if (sandbox !== undefined) json["sandbox_id"] = sandbox;
    if (fileAccess) json["file_access"] = fileAccess;
    if (metadata) json["metadata"] = metadata;
    if (ttl !== undefined) json["ttl"] = whole(ttl);
    const headers = { "idempotency-key": crypto.randomUUID() };
    return this.#within(record(await this.json<TenantSessionSent>("/v1/sessions", { json, headers })));
  }

  /** One that {@link Isolet.createSession} has made, by its id. @throws `no_session`. */
  async findSession(id: string): Promise<ExecutionSession> {
    return this.#within(await this.sessionInfo(id));
  }

  async #within({ id, sandboxId }: TenantSession): Promise<ExecutionSession> {
    return this.sandbox(sandboxId).getSession(id);
  }

  /** The record of one. @throws `no_session`. */
  async sessionInfo(id: string): Promise<TenantSession> {
    return record(await this.json<TenantSessionSent>(`/v1/sessions/${encodeURIComponent(id)}`));
  }

  /** All that {@link Isolet.createSession} has made, sorted by id: not those that were made in a sandbox. */
  async *listSessions(): AsyncGenerator<TenantSession> {
    for await (const sent of this.pages<TenantSessionSent>("/v1/sessions")) yield record(sent);
  }

  /** Ends one, its shell and the programs that run in it. @throws `no_session`. */
  async deleteSession(id: string): Promise<void> {
    await this.send(`/v1/sessions/${encodeURIComponent(id)}`, { method: "DELETE" });
  }

  /**
   * Ends those for which every filter holds; how many these were. At least one is needed.
   * @param filter `idle`: without a running command; `olderThan`: not used for so long, as `"1h"` or
   * seconds; 0 is every one.
   */
  async deleteSessions(filter: { idle?: boolean; olderThan?: string | number }): Promise<number> {
    const query = new URLSearchParams();
    if (filter.idle) query.set("status", "idle");
    if (filter.olderThan !== undefined) query.set("older_than", `${whole(filter.olderThan)}s`);
    const path = `/v1/sessions?${query}`;
    return (await this.json<{ deleted: number }>(path, { method: "DELETE" })).deleted;
  }

  /** What happens to all sandboxes of the tenant; comes back by itself after a lost connection, and goes
   *  on where it was. */
  events(options: EventsOptions = {}): AsyncGenerator<SandboxEvent> {
    return following(this, "/v1/events", options);
  }

  /** What the tenant's sandboxes have used. */
  async usage(): Promise<AccountUsage> {
    const sent = await this.json<UsageSent>("/v1/usage");
    return {
      activeSandboxes: sent.active_sandboxes,
      endedSandboxes: sent.history_sandboxes,
      cpuSeconds: sent.cpu_seconds,
      memoryMibSeconds: sent.mem_seconds,
      asOf: new Date(sent.as_of),
    };
  }

  /** What was done to the tenant's sandboxes, the oldest first; with `sandbox` to one alone, also when
   *  it is gone. */
  audit(options: { sandbox?: string; signal?: AbortSignal } = {}): AsyncGenerator<AuditEntry> {
    return entries(this, options);
  }
}

interface UsageSent {
  active_sandboxes: number;
  history_sandboxes: number;
  cpu_seconds: number;
  mem_seconds: number;
  as_of: string;
}
