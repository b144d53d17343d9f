/** Client of one server. */

import { auditEntries, type AuditEntry } from "./audit.js";
import { wholeSeconds } from "./duration.js";
import {
  type CommitOptions,
  type CommittedImage,
  type CommittedImageJson,
  type ImageInfo,
  type ImageJson,
  committedImage,
  imageFromJson,
  imagePath,
} from "./images.js";
import { type ApiKey, type ApiKeyJson, apiKey, type CreatedApiKey, type CreateKeyOptions, createKeyBody, type CurrentApiKey } from "./keys.js";
import { DRAIN_POLL_MS, type DrainOptions, type DrainProgress, type FleetNode, type NodeList, nodePath } from "./nodes.js";
import { followEvents, type EventsOptions, type SandboxEvent } from "./sandbox-events.js";
import { type SandboxInfo, type SandboxJson, sandboxInfo } from "./records.js";
import { getSandbox, type Sandbox } from "./sandbox.js";
import type { SandboxOptions } from "./sandbox-options.js";
import type { ExecutionSession } from "./session.js";
import { tenantSession, type TenantSession, type TenantSessionOptions, type TenantSessionJson } from "./tenant.js";
import { Transport } from "./transport.js";
import { type FileInfo, type FileJson, fileInfo } from "./file-types.js";
import {
  type Snapshot,
  type SnapshotChange,
  type SnapshotDiffJson,
  type SnapshotJson,
  snapshotFromJson,
} from "./snapshots.js";
import {
  type CreatedWebhook,
  type CreatedWebhookJson,
  type CreateWebhookOptions,
  type UpdateWebhookOptions,
  type Webhook,
  type WebhookJson,
  type WebhookTest,
  type WebhookTestJson,
  webhook,
  webhookPath,
  webhookTest,
} from "./webhooks.js";

/** Total resource usage of a tenant's sandboxes, including deleted ones. */
export interface AccountUsage {
  /** Sandboxes that exist. */
  activeSandboxes: number;
  /** Sandboxes that were deleted. */
  endedSandboxes: number;
  /** Processor time of all sandboxes, in seconds. */
  cpuSeconds: number;
  /** Memory limit in MiB times seconds awake, summed. */
  memoryMibSeconds: number;
  /** Time of measurement. */
  asOf: Date;
}

/**
 * Client of one server. It holds no open connections.
 *
 * @example
 * ```ts
 * const client = new Isolet({ url: "http://127.0.0.1:7300", apiKey: process.env.ISOLET_API_KEY });
 * const sandbox = client.sandbox("demo");
 * console.log((await sandbox.exec("echo hello")).stdout);
 * ```
 */
export class Isolet extends Transport {
  /**
   * Get a sandbox by id, without a request. Its first use creates it. Same as {@link getSandbox}.
   *
   * @param id unique within the tenant.
   * @param options used when the sandbox is created.
   */
  sandbox(id: string, options: SandboxOptions = {}): Sandbox {
    return getSandbox(this, id, options);
  }

  /** Iterate over all sandboxes of the key's tenant, sorted by id. */
  async *listSandboxes(): AsyncGenerator<SandboxInfo> {
    for await (const json of this.pages<SandboxJson>("/v1/sandboxes")) yield sandboxInfo(json);
  }

  /** List the snapshots of the key's tenant, sorted by id: all, or those of one sandbox. */
  async listSnapshots(sandboxId?: string): Promise<Snapshot[]> {
    const query = sandboxId === undefined ? "" : `?sandbox=${encodeURIComponent(sandboxId)}`;
    const { snapshots } = await this.json<{ snapshots: SnapshotJson[] }>(`/v1/snapshots${query}`);
    return snapshots.map(snapshotFromJson);
  }

  /**
   * Delete a snapshot, by its id or name. Sandboxes that were created from it keep their files.
   *
   * @throws {@link IsoletError} `no_snapshot`; `snapshot_in_use`: sandboxes are being created from it.
   */
  async deleteSnapshot(snapshot: string): Promise<void> {
    await this.send(`/v1/snapshots/${encodeURIComponent(snapshot)}`, { method: "DELETE" });
  }

  /** List a directory of a snapshot, `/workspace` by default, without a sandbox. */
  async *listSnapshotFiles(
    snapshot: string,
    path = "/workspace",
    { recursive = false, hidden = false }: { recursive?: boolean; hidden?: boolean } = {},
  ): AsyncGenerator<FileInfo> {
    const query = new URLSearchParams({ path, recursive: recursive ? "1" : "0", hidden: hidden ? "1" : "0" });
    const first = `/v1/snapshots/${encodeURIComponent(snapshot)}/files?${query}`;
    for await (const json of this.pages<FileJson>(first)) yield fileInfo(json);
  }

  /**
   * Read a file of a snapshot, without a sandbox.
   *
   * @throws {@link IsoletError} `no_snapshot`, `not_found`, `wrong_kind`.
   */
  async readSnapshotFile(snapshot: string, path: string): Promise<Uint8Array> {
    const query = new URLSearchParams({ path });
    const response = await this.send(`/v1/snapshots/${encodeURIComponent(snapshot)}/files?${query}`);
    return new Uint8Array(await response.arrayBuffer());
  }

  /** The paths that differ between two snapshots, sorted. */
  async *diffSnapshots(from: string, to: string): AsyncGenerator<SnapshotChange> {
    const path = `/v1/snapshots/${encodeURIComponent(from)}/diff/${encodeURIComponent(to)}`;
    for (let cursor: string | null = ""; cursor !== null; ) {
      const query: string = cursor === "" ? "" : `?cursor=${cursor}`;
      const page: SnapshotDiffJson = await this.json(`${path}${query}`);
      for (const json of page.changes) yield { change: json.change, file: fileInfo(json) };
      cursor = page.next_cursor;
    }
  }

  /** List the API keys of the client's tenant, including revoked ones, without their secrets. */
  async listKeys(): Promise<ApiKey[]> {
    return (await this.json<ApiKeyJson[]>("/v1/keys")).map(apiKey);
  }

  /** Read id, tenant and rights of the client's own key. */
  async currentKey(): Promise<CurrentApiKey> {
    const json = await this.json<{ id?: string | null; tenant: string; read_only: boolean }>("/v1/keys/current");
    return { id: json.id ?? undefined, tenant: json.tenant, readOnly: json.read_only };
  }

  /** Create another API key of the client's tenant. No other answer contains its `secret`. */
  async createKey(options: CreateKeyOptions = {}): Promise<CreatedApiKey> {
    const json = await this.json<ApiKeyJson & { secret: string }>("/v1/keys", { json: createKeyBody(options) });
    return { ...apiKey(json), secret: json.secret };
  }

  /**
   * Revoke an API key by its id. The server ends its connections.
   *
   * @throws {@link IsoletError} `no_key`.
   */
  async revokeKey(id: string): Promise<void> {
    await this.send(`/v1/keys/${encodeURIComponent(id)}`, { method: "DELETE" });
  }

  /** List the webhooks of the client's tenant, with the state of their deliveries. */
  async listWebhooks(): Promise<Webhook[]> {
    return (await this.json<WebhookJson[]>("/v1/webhooks")).map(webhook);
  }

  /**
   * Read a webhook and the state of its deliveries.
   *
   * @throws {@link IsoletError} `no_webhook`.
   */
  async getWebhook(id: string): Promise<Webhook> {
    return webhook(await this.json<WebhookJson>(webhookPath(id)));
  }

  /**
   * Let the server send an HTTP POST to a URL for each event from now on. No other answer contains the `secret`
   * that verifies signatures. The URL must lead to a public address, unless the operator allows others.
   *
   * @throws {@link IsoletError} `bad_field`, `too_many_webhooks`.
   */
  async createWebhook(url: string, options: CreateWebhookOptions = {}): Promise<CreatedWebhook> {
    const json = await this.json<CreatedWebhookJson>("/v1/webhooks", { json: { url, ...options } });
    return { ...webhook(json), secret: json.secret };
  }

  /**
   * Change a webhook. `enabled: true` also starts deliveries that the server has stopped, with the first event
   * that was not delivered.
   *
   * @throws {@link IsoletError} `no_webhook`, `bad_field`.
   */
  async updateWebhook(id: string, options: UpdateWebhookOptions): Promise<Webhook> {
    return webhook(await this.json<WebhookJson>(webhookPath(id), { method: "PATCH", json: options }));
  }

  /**
   * Delete a webhook. Events that were not delivered are dropped.
   *
   * @throws {@link IsoletError} `no_webhook`.
   */
  async deleteWebhook(id: string): Promise<void> {
    await this.send(webhookPath(id), { method: "DELETE" });
  }

  /**
   * Replace the secret of a webhook. The old one signs for another 24 hours.
   *
   * @throws {@link IsoletError} `no_webhook`.
   */
  async rotateWebhook(id: string): Promise<CreatedWebhook> {
    const json = await this.json<CreatedWebhookJson>(`${webhookPath(id)}/rotate`, { method: "POST" });
    return { ...webhook(json), secret: json.secret };
  }

  /**
   * Send one event `webhook.test` now. Returns the status of the receiver, or why there is none.
   *
   * @throws {@link IsoletError} `no_webhook`, `webhook_busy`.
   */
  async testWebhook(id: string): Promise<WebhookTest> {
    return webhookTest(await this.json<WebhookTestJson>(`${webhookPath(id)}/test`, { method: "POST" }));
  }

  /**
   * List the nodes of the fleet.
   *
   * @throws {@link IsoletError} `not_a_fleet`.
   */
  async listNodes(): Promise<NodeList> {
    const json = await this.json<{ here: string; is_current: boolean; nodes: FleetNode[] }>("/v1/nodes");
    return { here: json.here, isCurrent: json.is_current, nodes: json.nodes };
  }

  /**
   * Read a node and what it owns.
   *
   * @throws {@link IsoletError} `no_node`.
   */
  async getNode(name: string): Promise<FleetNode> {
    return this.json(nodePath(name));
  }

  /**
   * Exclude a node from placement. Its sandboxes stay. Needs a key of the tenant `default`, as do the other
   * calls that change nodes.
   */
  async cordonNode(name: string): Promise<FleetNode> {
    return this.json(`${nodePath(name)}/cordon`, { method: "POST" });
  }

  /** Let placement use a node again. */
  async uncordonNode(name: string): Promise<FleetNode> {
    return this.json(`${nodePath(name)}/uncordon`, { method: "POST" });
  }

  /** Cordon a node and start to move its sandboxes to others, without waiting for the end. */
  async startDrain(name: string, options: { timeout?: string | number } = {}): Promise<DrainProgress> {
    const json = options.timeout === undefined ? {} : { timeout_s: wholeSeconds(options.timeout) };
    return this.json(`${nodePath(name)}/drain`, { method: "POST", json });
  }

  /** Read how far the latest drain of a node is. */
  async drainProgress(name: string): Promise<DrainProgress> {
    return this.json(`${nodePath(name)}/drain`);
  }

  /**
   * Cordon a node, move its sandboxes to others, and wait for the end.
   *
   * @returns the result: `left` names the sandboxes that could not be moved.
   * @example
   * ```ts
   * const done = await client.drainNode("node-1", { timeout: "10m", onProgress: (now) => console.log(now.moved) });
   * ```
   */
  async drainNode(name: string, { timeout, onProgress }: DrainOptions = {}): Promise<DrainProgress> {
    let progress = await this.startDrain(name, timeout === undefined ? {} : { timeout });
    for (;;) {
      onProgress?.(progress);
      if (!progress.running) return progress;
      await new Promise((wake) => setTimeout(wake, DRAIN_POLL_MS));
      progress = await this.drainProgress(name);
    }
  }

  /** List the images of the key's tenant, newest first. */
  async listImages(): Promise<ImageInfo[]> {
    return (await this.json<ImageJson[]>("/v1/images")).map(imageFromJson);
  }

  /**
   * Make an image from a snapshot, by its id or name. The image contains every file of the snapshot: `warnings`
   * lists those that usually hold secrets.
   *
   * @param name of the image, such as `tools:1`. Another image of the tenant with this name loses it.
   * @throws {@link IsoletError} `no_snapshot`; `quota_exceeded`.
   */
  async commitImage(snapshot: string, name: string, options: CommitOptions = {}): Promise<CommittedImage> {
    const json = { snapshot, name, ...options };
    const headers = { "idempotency-key": crypto.randomUUID() };
    return committedImage(await this.json<CommittedImageJson>("/v1/images", { json, headers }));
  }

  /**
   * Give an image another name. Only the key's tenant has it, and no registry is asked for it.
   *
   * @param image a name that the image has.
   * @param name the name that it gets as well, such as `tools:1`. Another image of the tenant with this name loses it.
   * @throws {@link IsoletError} `no_image`; `image_name_configured`: the operator has configured what the name stands
   * for; `too_many_names`.
   */
  async tagImage(image: string, name: string): Promise<ImageInfo> {
    return imageFromJson(await this.json<ImageJson>("/v1/images/tag", { json: { image, name } }));
  }

  /**
   * Remove a name of an image; with the last name also the image.
   *
   * @throws {@link IsoletError} `no_image`; `image_in_use`: sandboxes or snapshots use it.
   */
  async deleteImage(name: string): Promise<void> {
    await this.send(imagePath(name), { method: "DELETE" });
  }

  /**
   * Copy a snapshot to the store that the operator has configured. Sends only what is missing there.
   *
   * @param snapshot its id or name.
   * @throws {@link IsoletError} `no_snapshot`, `no_snapshot_store`, `snapshot_store_failed`.
   */
  async pushSnapshot(snapshot: string): Promise<Snapshot> {
    const path = `/v1/snapshots/${encodeURIComponent(snapshot)}/push`;
    const pushed = await this.json<{ snapshot: SnapshotJson }>(path, { method: "POST" });
    return snapshotFromJson(pushed.snapshot);
  }

  /**
   * Copy a snapshot from the store to this server, where it has the same id.
   *
   * @param snapshot its id.
   * @param name replaces the name that it was pushed with.
   * @throws {@link IsoletError} `no_stored_snapshot`, `image_missing`, `snapshot_exists`,
   *   `no_snapshot_store`, `snapshot_store_failed`.
   */
  async pullSnapshot(snapshot: string, name?: string): Promise<Snapshot> {
    const path = `/v1/store/snapshots/${encodeURIComponent(snapshot)}/pull`;
    const body = name === undefined ? {} : { name };
    const pulled = await this.json<{ snapshot: SnapshotJson }>(path, { method: "POST", json: body });
    return snapshotFromJson(pulled.snapshot);
  }

  /** List the snapshots of the key's tenant in the store, sorted by id. */
  async listStoredSnapshots(): Promise<Snapshot[]> {
    const { snapshots } = await this.json<{ snapshots: SnapshotJson[] }>("/v1/store/snapshots");
    return snapshots.map(snapshotFromJson);
  }

  /**
   * Delete a snapshot from the store. Those on servers stay.
   *
   * @throws {@link IsoletError} `no_stored_snapshot`.
   */
  async deleteStoredSnapshot(snapshot: string): Promise<void> {
    await this.send(`/v1/store/snapshots/${encodeURIComponent(snapshot)}`, { method: "DELETE" });
  }

  /**
   * Create a session that can be found by its id alone, without naming its sandbox.
   *
   * @param options lifetime, sandbox and file access of the session.
   * @returns the new session.
   */
  async createSession(options: TenantSessionOptions = {}): Promise<ExecutionSession> {
    const { persistent, sandbox, fileAccess, metadata, ttl } = options;
    const json: Record<string, unknown> = {};
    if (persistent !== undefined) json["persistent"] = persistent;
    if (sandbox !== undefined) json["sandbox_id"] = sandbox;
    if (fileAccess) json["file_access"] = fileAccess;
    if (metadata) json["metadata"] = metadata;
    if (ttl !== undefined) json["ttl"] = wholeSeconds(ttl);
    const headers = { "idempotency-key": crypto.randomUUID() };
    return this.#openSession(tenantSession(await this.json<TenantSessionJson>("/v1/sessions", { json, headers })));
  }

  /**
   * Get a session that {@link Isolet.createSession} created.
   *
   * @throws {@link IsoletError} `no_session`: it does not exist or has ended.
   */
  async findSession(id: string): Promise<ExecutionSession> {
    return this.#openSession(await this.sessionInfo(id));
  }

  async #openSession({ id, sandboxId }: TenantSession): Promise<ExecutionSession> {
    return this.sandbox(sandboxId).getSession(id);
  }

  /**
   * Read configuration and state of a session that {@link Isolet.createSession} created.
   *
   * @throws {@link IsoletError} `no_session`.
   */
  async sessionInfo(id: string): Promise<TenantSession> {
    return tenantSession(await this.json<TenantSessionJson>(`/v1/sessions/${encodeURIComponent(id)}`));
  }

  /**
   * Iterate over all sessions that {@link Isolet.createSession} created, sorted by id. Sessions that were
   * created in a sandbox are not included.
   */
  async *listSessions(): AsyncGenerator<TenantSession> {
    for await (const json of this.pages<TenantSessionJson>("/v1/sessions")) yield tenantSession(json);
  }

  /**
   * Delete a session, its shell and its programs.
   *
   * @throws {@link IsoletError} `no_session`.
   */
  async deleteSession(id: string): Promise<void> {
    await this.send(`/v1/sessions/${encodeURIComponent(id)}`, { method: "DELETE" });
  }

  /**
   * Delete all sessions that match every filter.
   *
   * @param filter `idle`: only sessions without a running command. `olderThan`: only sessions unused for this
   *   long, in seconds or as text such as `"1h"`; 0 matches all. At least one filter is required.
   * @returns the number of deleted sessions.
   */
  async deleteSessions(filter: { idle?: boolean; olderThan?: string | number }): Promise<number> {
    const query = new URLSearchParams();
    if (filter.idle) query.set("status", "idle");
    if (filter.olderThan !== undefined) query.set("older_than", `${wholeSeconds(filter.olderThan)}s`);
    const path = `/v1/sessions?${query}`;
    return (await this.json<{ deleted: number }>(path, { method: "DELETE" })).deleted;
  }

  /**
   * Subscribe to events of all the tenant's sandboxes. The loop reconnects after a lost connection and
   * continues with the next event.
   *
   * @throws {@link IsoletError} `unauthorized` when the key is revoked, `cut` when the server is unreachable
   *   for a minute.
   * @example
   * ```ts
   * for await (const event of client.events()) console.log(event.type, event.sandbox);
   * ```
   */
  events(options: EventsOptions = {}): AsyncGenerator<SandboxEvent> {
    return followEvents(this, "/v1/events", options);
  }

  /** Read the total resource usage of the tenant's sandboxes. */
  async usage(): Promise<AccountUsage> {
    const json = await this.json<UsageJson>("/v1/usage");
    return {
      activeSandboxes: json.active_sandboxes,
      endedSandboxes: json.history_sandboxes,
      cpuSeconds: json.cpu_seconds,
      memoryMibSeconds: json.mem_seconds,
      asOf: new Date(json.as_of),
    };
  }

  /**
   * Iterate over the tenant's audit log, oldest entries first.
   *
   * @param options `sandbox`: only entries of this sandbox, which may be deleted. `signal`: aborts the
   *   request.
   */
  audit(options: { sandbox?: string; signal?: AbortSignal } = {}): AsyncGenerator<AuditEntry> {
    return auditEntries(this, options);
  }
}

interface UsageJson {
  active_sandboxes: number;
  history_sandboxes: number;
  cpu_seconds: number;
  mem_seconds: number;
  as_of: string;
}
