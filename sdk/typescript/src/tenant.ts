/** Sessions that a tenant keeps across its sandboxes, as their records have them. */

import type { FileAccess } from "./session.js";

/** What a session across sandboxes is to be. */
export interface TenantSessionOptions {
  /** It does not end for want of commands: others do five minutes after their last one, unless the
   *  server's configuration says otherwise. */
  persistent?: boolean;
  /** In which it lives; `default` unless told. It is made where it is not there. */
  sandbox?: string;
  /** What of the workspace it sees; all of it unless told. */
  fileAccess?: FileAccess;
  /** The caller's own words, at most 16 KiB as JSON. */
  metadata?: Record<string, unknown>;
  /** Its end, also in the middle of a command: `"10m"`, or seconds from now; 14,400 unless told, at most
   *  a year. */
  ttl?: string | number;
}

/** A session of `/v1/sessions`. */
export interface TenantSession {
  /** `sess_` and 12 hexadecimal digits. */
  id: string;
  sandboxId: string;
  /** `ready`. */
  status: string;
  /** A command or program of it is running. */
  busy: boolean;
  /** It does not end for want of commands. */
  persistent: boolean;
  /** Seconds from its creation to its end. */
  ttl: number;
  fileAccess: FileAccess;
  metadata: Record<string, unknown>;
  createdAt: Date;
  /** Last begin or end of a command. */
  lastActivity: Date;
}

/** As the server says it. */
export interface TenantSessionSent {
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

/** Reads a record. */
export function record(sent: TenantSessionSent): TenantSession {
  return {
    id: sent.id,
    sandboxId: sent.sandbox_id,
    status: sent.status,
    busy: sent.busy,
    persistent: sent.persistent,
    ttl: sent.ttl,
    fileAccess: sent.file_access,
    metadata: sent.metadata,
    createdAt: new Date(sent.created_at * 1000),
    lastActivity: new Date(sent.last_activity * 1000),
  };
}
