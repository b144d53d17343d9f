/** How a sandbox is to be. */

import { whole } from "./duration.js";
import type { Credential, Network } from "./network.js";

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
  /** `host`, or a name that the server's configuration has. */
  image?: string;
  /** Its files, in MiB, from 32 on; as much as the server's disk has unless told. */
  diskMib?: number;
  /** Environment of every shell and program. */
  env?: Record<string, string>;
  /** Of its processes and files in memory, in MiB. */
  memoryMib?: number;
  /** Processor time, in thousandths of one core. */
  cpuMillis?: number;
  /** Processes and threads. */
  pids?: number;
  /** The caller's own words, at most 16 KiB as JSON. */
  metadata?: Record<string, unknown>;
  /** Ends by itself: `"10m"`, or seconds from now; never unless told. */
  ttl?: string | number;
  /** Where it may connect to; loopback alone unless told or configured. */
  network?: Network;
  /** The rules of a network profile, in place of `network`. */
  networkProfile?: string;
  /** Put into its requests to hosts, from outside; their values never are inside. */
  credentials?: Credential[];
}

/** What of a sandbox can be changed. */
export interface SandboxChange extends Pick<SandboxOptions, "memoryMib" | "cpuMillis" | "pids" | "metadata"> {
  /** For shells and programs that start from now on; `undefined` removes a name. */
  env?: Record<string, string | undefined>;
  /** Counted from now: `"10m"`, or seconds without use; 0 never. */
  sleepAfter?: string | number;
  /** Counted from now: `"10m"`, or seconds to live; 0 never ends by itself. */
  ttl?: string | number;
}

/** What both have, as the server takes it. */
export function limits(wish: SandboxChange | SandboxOptions): Record<string, unknown> {
  const { memoryMib, cpuMillis, pids, metadata, ttl } = wish;
  const json: Record<string, unknown> = {};
  if (memoryMib !== undefined) json["memory_mib"] = memoryMib;
  if (cpuMillis !== undefined) json["cpu_millis"] = cpuMillis;
  if (pids !== undefined) json["pids"] = pids;
  if (metadata) json["metadata"] = metadata;
  if (ttl !== undefined) json["ttl_s"] = whole(ttl);
  return json;
}
