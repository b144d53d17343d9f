/** API client of the console, and the records that the API returns. */

import { Isolet, IsoletError } from "@isolet/sdk";
import { computed } from "@preact/signals";
import { key } from "./key";

/** A sandbox. */
export interface Sandbox {
  id: string;
  state: string;
  cause?: string;
  image: string;
  image_resolved: string;
  memory_mib: number;
  cpu_millis: number;
  pids: number;
  disk_mib: number;
  network: string;
  persistent: boolean;
  ttl_s: number | null;
  expires_at_ms: number | null;
  sleep_after_s: number | null;
  metadata: Record<string, unknown>;
  env_names: string[];
  created_at_ms: number;
  create_ms: number;
  agent_version?: number;
  agent_outdated: boolean;
  usage?: Usage;
}

/** Resource usage of a running sandbox. */
export interface Usage {
  memory_bytes: number;
  memory_peak_bytes: number;
  cpu_ms: number;
  pids: number;
  oom_kills: number;
  disk_bytes?: number;
  uptime_ms: number;
}

/** A session of a sandbox. */
export interface Session {
  id: string;
  cwd: string;
  env_names: string[];
  command_timeout_ms: number;
  metadata: Record<string, unknown>;
  created_at_ms: number;
  last_activity_ms: number;
  busy: boolean;
  shell_pid: number | null;
  expires_at_ms: number | null;
  file_access: { read: string[]; write: string[] };
}

/** Client for the current key; `undefined` when signed out. */
export const client = computed(() =>
  key.value === undefined ? undefined : new Isolet({ url: location.origin, apiKey: key.value }),
);

/**
 * The current client.
 *
 * @throws {@link IsoletError} `no_key` when signed out.
 */
export function api(): Isolet {
  const now = client.peek();
  if (!now) throw new IsoletError(401, "no_key", "you are signed out", "sign in again");
  return now;
}

/** URL path of a sandbox or of one of its sub-resources. */
export function at(sandbox: string, ...below: string[]): string {
  return ["/v1/sandboxes", sandbox, ...below].map((part, i) => (i === 0 ? part : encodeURIComponent(part))).join("/");
}

/** Read all pages of a list, up to `max` entries. */
export async function listAll<T>(path: string, max: number, signal?: AbortSignal): Promise<T[]> {
  const all: T[] = [];
  let next: string | undefined = path;
  while (next !== undefined && all.length < max) {
    const response: Response = await api().send(next, { signal });
    all.push(...((await response.json()) as T[]));
    next = /^<([^>]+)>; rel="next"$/.exec(response.headers.get("link") ?? "")?.[1];
  }
  return all;
}

/** Message and hint of an error, for display. */
export function describeError(error: unknown): { message: string; hint: string } {
  if (error instanceof IsoletError) return { message: error.message, hint: error.hint };
  return { message: error instanceof Error ? error.message : String(error), hint: "" };
}
