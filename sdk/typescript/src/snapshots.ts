/** Snapshots: the files of a sandbox and the state of its shells at one moment. */

import { wholeSeconds } from "./duration.js";
import type { FileInfo, FileJson } from "./file-types.js";

/** Options of a new snapshot. */
export interface SnapshotOptions {
  /** Can stand for the id; unique among the tenant's snapshots. */
  name?: string;
  /** Arbitrary data of the caller, at most 16 KiB as JSON. */
  metadata?: Record<string, unknown>;
  /** Lifetime, after which the server deletes it: `"1d"`, or seconds; unlimited by default. */
  ttl?: string | number;
}

/** A snapshot of a sandbox. */
export interface Snapshot {
  id: string;
  name: string | undefined;
  /** The id that the sandbox had. */
  sandboxId: string;
  metadata: Record<string, unknown>;
  createdAt: Date;
  /** When the server deletes it; `undefined`: never. */
  expiresAt: Date | undefined;
  /** Size of its files. A copy by reference takes less of the disk. */
  sizeBytes: number;
  /** How long the processes of the sandbox were frozen. */
  frozenMs: number;
  /** Why it was taken: by a request, at an interval, or before the sandbox was deleted. */
  trigger: "request" | "schedule" | "destroy";
  /** What was open and is not part of it, such as `processes`. */
  lost: string[];
}

/** A path that differs between two snapshots. */
export interface SnapshotChange {
  change: "added" | "changed" | "removed";
  /** The file in the second snapshot, or in the first if it was removed. */
  file: FileInfo;
}

/** The server's JSON. */
export interface SnapshotDiffJson {
  changes: (FileJson & { change: SnapshotChange["change"] })[];
  next_cursor: string | null;
}

/** The server's JSON. */
export interface SnapshotJson {
  id: string;
  name: string | null;
  sandbox: string;
  metadata: Record<string, unknown>;
  created_at_ms: number;
  expires_at_ms: number | null;
  size_bytes: number;
  frozen_ms: number;
  trigger?: Snapshot["trigger"];
  lost: string[];
}

/** Convert options to the server's JSON. */
export function snapshotOptions({ name, metadata, ttl }: SnapshotOptions): Record<string, unknown> {
  const json: Record<string, unknown> = {};
  if (name !== undefined) json["name"] = name;
  if (metadata) json["metadata"] = metadata;
  if (ttl !== undefined) json["ttl_s"] = wholeSeconds(ttl);
  return json;
}

/** Convert the server's JSON. */
export function snapshotFromJson(json: SnapshotJson): Snapshot {
  return {
    id: json.id,
    name: json.name ?? undefined,
    sandboxId: json.sandbox,
    metadata: json.metadata,
    createdAt: new Date(json.created_at_ms),
    expiresAt: json.expires_at_ms === null ? undefined : new Date(json.expires_at_ms),
    sizeBytes: json.size_bytes,
    frozenMs: json.frozen_ms,
    trigger: json.trigger ?? "request",
    lost: json.lost,
  };
}
