/** Sandboxes and sessions, as their records have them. */

import type { FileAccess } from "./session.js";

/** What a running sandbox uses. */
export interface SandboxUsage {
  /** Processor time, in ms. */
  cpuMs: number;
  /** Memory now, in bytes. */
  memoryBytes: number;
  /** The most it ever was, in bytes. */
  memoryPeakBytes: number;
  /** Processes and threads now. */
  pids: number;
  /** Processes that were killed for memory. */
  oomKills: number;
  /** Since its creation, in ms. */
  uptimeMs: number;
  /** How much of that it did not sleep, in ms. */
  awakeMs: number;
  /** What its files take, in bytes, where `diskMib` limits them. */
  diskBytes: number | undefined;
  /** What went between it and the world, where it has or had a way out. */
  network: NetworkTraffic | undefined;
}

/** What went between a sandbox and the world, over its sleeps; heads of packets are counted with them. */
export interface NetworkTraffic {
  sentBytes: number;
  receivedBytes: number;
  sentPackets: number;
  receivedPackets: number;
  /** Packets, connections and lookups that were refused. */
  refused: number;
}

/** A sandbox. */
export interface SandboxInfo {
  id: string;
  state: "creating" | "running" | "sleeping" | "unreachable" | "failed" | "destroyed";
  /** Why it failed. */
  cause: string | undefined;
  /** As it was asked for. */
  image: string;
  /** Its files outlive a sleep. */
  persistent: boolean;
  memoryMib: number;
  /** Thousandths of one core. */
  cpuMillis: number;
  /** Processes and threads that it may have. */
  pids: number;
  /** 0: as much as the server's disk has. */
  diskMib: number;
  /** `none` (loopback alone), `open` or `rules`. */
  network: string;
  /** The network profile that its rules were taken from, unless they were changed since. */
  networkProfile: string | undefined;
  /** Seconds without use until it sleeps; `undefined` never. */
  sleepAfter: number | undefined;
  /** Seconds to live; `undefined` never ends by itself. */
  ttl: number | undefined;
  /** Values are never told. */
  envNames: string[];
  metadata: Record<string, unknown>;
  createdAt: Date;
  expiresAt: Date | undefined;
  /** Of one running sandbox; not in lists. */
  usage: SandboxUsage | undefined;
}

/** A session of a sandbox. */
export interface SessionInfo {
  id: string;
  sandboxId: string;
  /** Where its shell begins. */
  cwd: string;
  /** Values are never told. */
  envNames: string[];
  /** For commands that name none, in ms; 0 never. */
  commandTimeoutMs: number;
  fileAccess: FileAccess;
  metadata: Record<string, unknown>;
  /** A command or program of it is running. */
  busy: boolean;
  /** Inside, when its shell is open. */
  shellPid: number | undefined;
  /** Seconds to live; `undefined` never ends by itself. */
  ttl: number | undefined;
  createdAt: Date;
  /** Last begin or end of a command. */
  lastActivity: Date;
  expiresAt: Date | undefined;
}

/** A sandbox, as the server says it. */
export interface SandboxSent {
  id: string;
  state: SandboxInfo["state"];
  cause?: string | null;
  image: string;
  persistent: boolean;
  memory_mib: number;
  cpu_millis: number;
  pids: number;
  disk_mib: number;
  network: string;
  network_profile?: string | null;
  sleep_after_s?: number | null;
  ttl_s?: number | null;
  env_names: string[];
  metadata: Record<string, unknown>;
  created_at_ms: number;
  expires_at_ms?: number | null;
  usage?: UsageSent | null;
}

interface UsageSent {
  cpu_ms: number;
  memory_bytes: number;
  memory_peak_bytes: number;
  pids: number;
  oom_kills: number;
  uptime_ms: number;
  awake_ms: number;
  disk_bytes?: number | null;
  network?: TrafficSent | null;
}

interface TrafficSent {
  sent_bytes: number;
  received_bytes: number;
  sent_packets: number;
  received_packets: number;
  refused: number;
}

/** A session, as the server says it. */
export interface SessionSent {
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

const moment = (ms: number | null | undefined): Date | undefined => (ms == null ? undefined : new Date(ms));

/** Reads a sandbox. */
export function sandboxInfo(sent: SandboxSent): SandboxInfo {
  const { id, state, image, persistent, pids, network, metadata, usage } = sent;
  return {
    ...{ id, state, image, persistent, pids, network, metadata },
    cause: sent.cause ?? undefined,
    memoryMib: sent.memory_mib,
    cpuMillis: sent.cpu_millis,
    diskMib: sent.disk_mib,
    networkProfile: sent.network_profile ?? undefined,
    sleepAfter: sent.sleep_after_s ?? undefined,
    ttl: sent.ttl_s ?? undefined,
    envNames: sent.env_names,
    createdAt: new Date(sent.created_at_ms),
    expiresAt: moment(sent.expires_at_ms),
    usage: usage ? used(usage) : undefined,
  };
}

function used(sent: UsageSent): SandboxUsage {
  return {
    cpuMs: sent.cpu_ms,
    memoryBytes: sent.memory_bytes,
    memoryPeakBytes: sent.memory_peak_bytes,
    pids: sent.pids,
    oomKills: sent.oom_kills,
    uptimeMs: sent.uptime_ms,
    awakeMs: sent.awake_ms,
    diskBytes: sent.disk_bytes ?? undefined,
    network: sent.network ? carried(sent.network) : undefined,
  };
}

function carried(sent: TrafficSent): NetworkTraffic {
  return {
    sentBytes: sent.sent_bytes,
    receivedBytes: sent.received_bytes,
    sentPackets: sent.sent_packets,
    receivedPackets: sent.received_packets,
    refused: sent.refused,
  };
}

/** Reads a session. */
export function sessionInfo(sent: SessionSent): SessionInfo {
  return {
    id: sent.id,
    sandboxId: sent.sandbox_id,
    cwd: sent.cwd,
    envNames: sent.env_names,
    commandTimeoutMs: sent.command_timeout_ms,
    fileAccess: sent.file_access,
    metadata: sent.metadata,
    busy: sent.busy,
    shellPid: sent.shell_pid ?? undefined,
    ttl: sent.ttl_s ?? undefined,
    createdAt: new Date(sent.created_at_ms),
    lastActivity: new Date(sent.last_activity_ms),
    expiresAt: moment(sent.expires_at_ms),
  };
}
