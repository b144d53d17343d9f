/** API keys of a tenant. */

import { wholeSeconds } from "./duration.js";

/** An API key, without its secret. */
export interface ApiKey {
  /** By which the key is revoked. */
  id: string;
  /** The tenant whose sandboxes the key gives access to. */
  tenant: string;
  /** The owner's name for it. */
  label: string;
  /** It allows only calls that read. */
  readOnly: boolean;
  createdAt: Date;
  /** `undefined`: never. */
  expiresAt: Date | undefined;
  /** `undefined`: never. */
  lastUsedAt: Date | undefined;
  /** `undefined`: it was not revoked. */
  revokedAt: Date | undefined;
}

/** A new key with its secret, which no other answer contains. */
export interface CreatedApiKey extends ApiKey {
  secret: string;
}

/** The key that a client uses. */
export interface CurrentApiKey {
  /** `undefined` for the key from the environment of the server. */
  id: string | undefined;
  tenant: string;
  readOnly: boolean;
}

/** Options of a new key. */
export interface CreateKeyOptions {
  /** A name by which people recognise the key, at most 200 bytes. */
  label?: string;
  /** Allow only calls that read. */
  readOnly?: boolean;
  /** Lifetime in seconds, or as text such as `"30d"`; that of the client's key by default. */
  ttl?: string | number;
}

/** The server's JSON of a key. */
export interface ApiKeyJson {
  id: string;
  tenant: string;
  label: string;
  read_only: boolean;
  created_at_ms: number;
  expires_at_ms?: number | null;
  last_used_at_ms?: number | null;
  revoked_at_ms?: number | null;
}

const time = (ms: number | null | undefined): Date | undefined => (ms == null ? undefined : new Date(ms));

/** Convert the server's JSON. */
export function apiKey(json: ApiKeyJson): ApiKey {
  return {
    id: json.id,
    tenant: json.tenant,
    label: json.label,
    readOnly: json.read_only,
    createdAt: new Date(json.created_at_ms),
    expiresAt: time(json.expires_at_ms),
    lastUsedAt: time(json.last_used_at_ms),
    revokedAt: time(json.revoked_at_ms),
  };
}

/** The body of a request for a key. */
export function createKeyBody({ label, readOnly, ttl }: CreateKeyOptions): Record<string, unknown> {
  return {
    ...(label === undefined ? {} : { label }),
    ...(readOnly === undefined ? {} : { read_only: readOnly }),
    ...(ttl === undefined ? {} : { ttl_s: wholeSeconds(ttl) }),
  };
}
