/** Sessions that are addressed by their id alone. */

import type { FileAccess } from "./session.js";

/** Options of a new session. */
export interface TenantSessionOptions {
  /**
   * Do not expire when idle. Other sessions end five minutes after their last command, or as the server
   * configures.
   */
  persistent?: boolean;
  /** Sandbox to create the session in; `default` by default. The sandbox is created if needed. */
  sandbox?: string;
  /** Part of the workspace that the session may access; all by default. */
  fileAccess?: FileAccess;
  /** Arbitrary data of the caller, at most 16 KiB as JSON. */
  metadata?: Record<string, unknown>;
  /**
   * Lifetime, after which the session ends even during a command: `"10m"`, or seconds; 14,400 by default, at
   * most a year.
   */
  ttl?: string | number;
}

/** A session of `/v1/sessions`. */
export interface TenantSession {
  /** `sess_` followed by 12 hexadecimal digits. */
  id: string;
  sandboxId: string;
  /** Always `ready`. */
  status: string;
  /** A command or program of the session is running. */
  busy: boolean;
  /** Does not expire when idle. */
  persistent: boolean;
  /** Lifetime in seconds, from creation. */
  ttl: number;
  fileAccess: FileAccess;
  metadata: Record<string, unknown>;
  createdAt: Date;
  /** Start or end of the latest command. */
  lastActivity: Date;
}

/** The server's JSON of a session. */
export interface TenantSessionJson {
  id: string;
  sandbox_id: string;
  status: string;
  busy: boolean;
  persistent: boolean;
  ttl: number;
  file_access: FileAccess;
  metadata: Record<string, unknown>;
  created_at: number;
  last_activity: number;
}

/** Convert the server's JSON. */
export function tenantSession(json: TenantSessionJson): TenantSession {
  return {
    id: json.id,
    sandboxId: json.sandbox_id,
    status: json.status,
    busy: json.busy,
    persistent: json.persistent,
    ttl: json.ttl,
    fileAccess: json.file_access,
    metadata: json.metadata,
    createdAt: new Date(json.created_at * 1000),
    lastActivity: new Date(json.last_activity * 1000),
  };
}
