/** Options of a sandbox. */

import { wholeSeconds } from "./duration.js";
import type { Credential, Network } from "./network.js";

/** Options of a sandbox, used when the first call creates it. */
export interface SandboxOptions {
  /** Idle time before it sleeps: `"10m"` (default), `"1h"`, or seconds. */
  sleepAfter?: string | number;
  /** Never sleep. */
  keepAlive?: boolean;
  /**
   * Run commands without a session in the session `default` (default); if false, run each as a separate
   * process without shared state.
   */
  enableDefaultSession?: boolean;
  /** Preserve files and shell state across sleep; false by default. */
  persistent?: boolean;
  /** Resume the sandbox when it is paused and a call works in it; false by default. */
  autoResume?: boolean;
  /** Time between snapshots that the server takes: `"1h"`, or seconds; 0 (default): never. */
  snapshotEvery?: string | number;
  /** How many snapshots at intervals exist, 1 to 100; the oldest ones are deleted; 5 by default. */
  keep?: number;
  /** Take a snapshot before the sandbox is deleted; false by default. */
  snapshotOnDestroy?: boolean;
  /** Convert the id to lower case, so that it can be part of a host name. */
  normalizeId?: boolean;
  /** `host`, or an image name from the server's configuration. */
  image?: string;
  /** Limit on files, in MiB, at least 32; no limit by default. */
  diskMib?: number;
  /** Id or name of a snapshot to start from; settings that are left out are those of the snapshot. */
  snapshot?: string;
  /** Environment variables of all shells and programs. */
  env?: Record<string, string>;
  /** Memory limit for processes and in-memory files, in MiB. */
  memoryMib?: number;
  /** CPU limit, in thousandths of a core. */
  cpuMillis?: number;
  /** Limit on processes and threads. */
  pids?: number;
  /** Arbitrary data of the caller, at most 16 KiB as JSON. */
  metadata?: Record<string, unknown>;
  /** Lifetime, after which the server deletes the sandbox: `"10m"`, or seconds; unlimited by default. */
  ttl?: string | number;
  /** Allowed destinations; loopback only by default, or as the server configures. */
  network?: Network;
  /** Name of a network profile, instead of `network`. */
  networkProfile?: string;
  /** In a fleet: region of its node; that of the node that gets the request by default. */
  region?: string;
  /** In a fleet: labels that its node must have. */
  labels?: Record<string, string>;
  /** Secrets that the egress proxy injects into requests to given hosts; never visible inside. */
  credentials?: Credential[];
}

/** Changes of a sandbox. Omitted fields change nothing. */
export interface SandboxChange
  extends Pick<
    SandboxOptions,
    "memoryMib" | "cpuMillis" | "pids" | "metadata" | "autoResume" | "snapshotEvery" | "keep" | "snapshotOnDestroy"
  > {
  /** Variables for shells and programs that start later; `undefined` removes one. */
  env?: Record<string, string | undefined>;
  /** Idle time before sleep, counted from now: `"10m"`, or seconds; 0 disables sleep. */
  sleepAfter?: string | number;
  /** Lifetime, counted from now: `"10m"`, or seconds; 0 means unlimited. */
  ttl?: string | number;
}

/** JSON of the fields that both have. */
export function limits(options: SandboxChange | SandboxOptions): Record<string, unknown> {
  const { memoryMib, cpuMillis, pids, metadata, ttl, autoResume, snapshotEvery, keep, snapshotOnDestroy } = options;
  const json: Record<string, unknown> = {};
  if (memoryMib !== undefined) json["memory_mib"] = memoryMib;
  if (cpuMillis !== undefined) json["cpu_millis"] = cpuMillis;
  if (pids !== undefined) json["pids"] = pids;
  if (autoResume !== undefined) json["auto_resume"] = autoResume;
  if (snapshotEvery !== undefined) json["snapshot_every_s"] = wholeSeconds(snapshotEvery);
  if (keep !== undefined) json["keep"] = keep;
  if (snapshotOnDestroy !== undefined) json["snapshot_on_destroy"] = snapshotOnDestroy;
  if (metadata) json["metadata"] = metadata;
  if (ttl !== undefined) json["ttl_s"] = wholeSeconds(ttl);
  return json;
}
