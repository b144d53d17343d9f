/** Configuration and state of sandboxes and sessions. */

import type { LostState } from "./exec.js";
import type { FileAccess } from "./session.js";

/** Resource usage of a running sandbox. */
export interface SandboxUsage {
  /** Processor time, in milliseconds. */
  cpuMs: number;
  /** Current memory, in bytes. */
  memoryBytes: number;
  /** Highest memory so far, in bytes. */
  memoryPeakBytes: number;
  /** Current processes and threads. */
  pids: number;
  /** Processes killed by the kernel's OOM killer. */
  oomKills: number;
  /** Time since creation, in milliseconds. */
  uptimeMs: number;
  /** Time since creation without sleep, in milliseconds. */
  awakeMs: number;
  /** Size of its files in bytes; `undefined` without `diskMib`. */
  diskBytes: number | undefined;
  /** `undefined` if it never had network access. */
  network: NetworkTraffic | undefined;
}

/** Network traffic of a sandbox over its whole life, including packet headers. */
export interface NetworkTraffic {
  sentBytes: number;
  receivedBytes: number;
  sentPackets: number;
  receivedPackets: number;
  /** Denied packets, connections and DNS lookups. */
  refused: number;
}

/** Configuration and state of a sandbox. */
export interface SandboxInfo {
  id: string;
  state: "creating" | "running" | "paused" | "sleeping" | "unreachable" | "failed" | "destroyed";
  /** Reason of a failure. */
  cause: string | undefined;
  /** Image as requested. */
  image: string;
  /** Files and shell state survive sleep. */
  persistent: boolean;
  /** A call that works in the sandbox resumes it when it is paused. */
  autoResume: boolean;
  /** Seconds between snapshots that the server takes; `undefined`: never. */
  snapshotEvery: number | undefined;
  /** How many snapshots at intervals exist at most. */
  keep: number;
  /** The server takes a snapshot before it deletes the sandbox. */
  snapshotOnDestroy: boolean;
  /** In a fleet: the node that has it. */
  node: string | undefined;
  /** In a fleet: the region in which it was placed. */
  region: string | undefined;
  /** In a fleet: why it was placed on this node, for people. */
  placementReason: string | undefined;
  /** How often it was started: at its creation, and at each wake since. */
  boots: number;
  memoryMib: number;
  /** CPU limit in thousandths of a core. */
  cpuMillis: number;
  /** Limit on processes and threads. */
  pids: number;
  /** Disk limit in MiB; 0 means no limit. */
  diskMib: number;
  /** `none` (loopback only), `open` or `rules`. */
  network: string;
  /** Network profile that the rules come from; `undefined` after the rules were changed. */
  networkProfile: string | undefined;
  /** Idle seconds before it sleeps; `undefined`: never. */
  sleepAfter: number | undefined;
  /** Lifetime in seconds; `undefined`: unlimited. */
  ttl: number | undefined;
  /** Names only; the server never returns values. */
  envNames: string[];
  metadata: Record<string, unknown>;
  createdAt: Date;
  expiresAt: Date | undefined;
  /** Protocol version of the running agent; `undefined` while no agent runs. */
  agentVersion: number | undefined;
  /** The agent is of an earlier version than the server. A sleep and a wake replace it. */
  agentOutdated: boolean;
  /** Only while it is running or paused; `undefined` in lists. */
  usage: SandboxUsage | undefined;
}

/** A sandbox after its recovery, and what is lost. */
export interface RecoveredSandbox {
  /** Asleep, unless it had not failed. */
  info: SandboxInfo;
  /**
   * What is lost, of `shells`, `processes` and `shell_state`; empty if nothing is, or a result has reported it
   * already. The next command's result reports it again.
   */
  lost: string[];
  /** Sessions whose shell state is not what it was. */
  lostState: LostState[];
}

/** A sandbox after a snapshot was restored in place, and what is lost. */
export interface RestoredSandbox {
  /** Running if it ran before, otherwise asleep. */
  info: SandboxInfo;
  /** What was ended, and what the snapshot does not contain. The next command's result reports it again. */
  lost: string[];
  /** Sessions whose shell state is not complete. */
  lostState: LostState[];
}

/** Configuration and state of a session. */
export interface SessionInfo {
  id: string;
  sandboxId: string;
  /** Initial working directory. */
  cwd: string;
  /** Names only; the server never returns values. */
  envNames: string[];
  /** Default timeout of commands, in milliseconds; 0: none. */
  commandTimeoutMs: number;
  fileAccess: FileAccess;
  metadata: Record<string, unknown>;
  /** A command or program of the session is running. */
  busy: boolean;
  /** Pid of its shell inside the sandbox, if open. */
  shellPid: number | undefined;
  /** Lifetime in seconds; `undefined`: unlimited. */
  ttl: number | undefined;
  createdAt: Date;
  /** Start or end of the latest command. */
  lastActivity: Date;
  expiresAt: Date | undefined;
}

/** The server's JSON of a sandbox. */
export interface SandboxJson {
  id: string;
  state: SandboxInfo["state"];
  cause?: string | null;
  image: string;
  persistent: boolean;
  auto_resume?: boolean;
  snapshot_every_s?: number | null;
  keep?: number;
  snapshot_on_destroy?: boolean;
  node?: string;
  region?: string;
  placement_reason?: string;
  boots?: number;
  memory_mib: number;
  cpu_millis: number;
  pids: number;
  disk_mib: number;
  network: string;
  network_profile?: string | null;
  agent_version?: number;
  agent_outdated?: boolean;
  sleep_after_s?: number | null;
  ttl_s?: number | null;
  env_names: string[];
  metadata: Record<string, unknown>;
  created_at_ms: number;
  expires_at_ms?: number | null;
  usage?: UsageJson | null;
}

interface UsageJson {
  cpu_ms: number;
  memory_bytes: number;
  memory_peak_bytes: number;
  pids: number;
  oom_kills: number;
  uptime_ms: number;
  awake_ms: number;
  disk_bytes?: number | null;
  network?: TrafficJson | null;
}

interface TrafficJson {
  sent_bytes: number;
  received_bytes: number;
  sent_packets: number;
  received_packets: number;
  refused: number;
}

/** The server's JSON of a session. */
export interface SessionJson {
  id: string;
  sandbox_id: string;
  cwd: string;
  env_names: string[];
  command_timeout_ms: number;
  file_access: FileAccess;
  metadata: Record<string, unknown>;
  busy: boolean;
  shell_pid?: number | null;
  ttl_s?: number | null;
  created_at_ms: number;
  last_activity_ms: number;
  expires_at_ms?: number | null;
}

const optionalDate = (ms: number | null | undefined): Date | undefined => (ms == null ? undefined : new Date(ms));

/** Convert the server's JSON. */
export function sandboxInfo(json: SandboxJson): SandboxInfo {
  const { id, state, image, persistent, pids, network, metadata, usage } = json;
  return {
    ...{ id, state, image, persistent, pids, network, metadata },
    cause: json.cause ?? undefined,
    autoResume: json.auto_resume ?? false,
    snapshotEvery: json.snapshot_every_s ?? undefined,
    keep: json.keep ?? 5,
    snapshotOnDestroy: json.snapshot_on_destroy ?? false,
    node: json.node,
    region: json.region,
    placementReason: json.placement_reason,
    boots: json.boots ?? 1,
    memoryMib: json.memory_mib,
    cpuMillis: json.cpu_millis,
    diskMib: json.disk_mib,
    networkProfile: json.network_profile ?? undefined,
    agentVersion: json.agent_version,
    agentOutdated: json.agent_outdated ?? false,
    sleepAfter: json.sleep_after_s ?? undefined,
    ttl: json.ttl_s ?? undefined,
    envNames: json.env_names,
    createdAt: new Date(json.created_at_ms),
    expiresAt: optionalDate(json.expires_at_ms),
    usage: usage ? usageFromJson(usage) : undefined,
  };
}

/** Convert the server's JSON. */
export function recoveredSandbox(json: SandboxJson & { lost?: string[]; lost_state?: LostState[] }): RecoveredSandbox {
  return { info: sandboxInfo(json), lost: json.lost ?? [], lostState: json.lost_state ?? [] };
}

export function restoredSandbox(json: SandboxJson & { lost?: string[]; lost_state?: LostState[] }): RestoredSandbox {
  return { info: sandboxInfo(json), lost: json.lost ?? [], lostState: json.lost_state ?? [] };
}

function usageFromJson(json: UsageJson): SandboxUsage {
  return {
    cpuMs: json.cpu_ms,
    memoryBytes: json.memory_bytes,
    memoryPeakBytes: json.memory_peak_bytes,
    pids: json.pids,
    oomKills: json.oom_kills,
    uptimeMs: json.uptime_ms,
    awakeMs: json.awake_ms,
    diskBytes: json.disk_bytes ?? undefined,
    network: json.network ? trafficFromJson(json.network) : undefined,
  };
}

function trafficFromJson(json: TrafficJson): NetworkTraffic {
  return {
    sentBytes: json.sent_bytes,
    receivedBytes: json.received_bytes,
    sentPackets: json.sent_packets,
    receivedPackets: json.received_packets,
    refused: json.refused,
  };
}

/** Convert the server's JSON. */
export function sessionInfo(json: SessionJson): SessionInfo {
  return {
    id: json.id,
    sandboxId: json.sandbox_id,
    cwd: json.cwd,
    envNames: json.env_names,
    commandTimeoutMs: json.command_timeout_ms,
    fileAccess: json.file_access,
    metadata: json.metadata,
    busy: json.busy,
    shellPid: json.shell_pid ?? undefined,
    ttl: json.ttl_s ?? undefined,
    createdAt: new Date(json.created_at_ms),
    lastActivity: new Date(json.last_activity_ms),
    expiresAt: optionalDate(json.expires_at_ms),
  };
}
