/** Ports of a sandbox: listening programs, links and requests. */

import type { Isolet } from "./client.js";
import type { Call } from "./transport.js";

/** A port on which a program in the sandbox listens. */
export interface ListeningPort {
  /** 1 to 65535. */
  port: number;
  /** Bound addresses; `0.0.0.0` and `::` mean all of the sandbox's. */
  addresses: string[];
  /** URL path on the server that proxies to the port; needs a key. */
  path: string;
}

/** Options of a link. */
export interface ExposeOptions {
  /** Name of the port in lists, at most 128 bytes. */
  name?: string;
  /** Lifetime of the link in seconds; 3600 by default, at most 2592000 (30 days). */
  ttlSeconds?: number;
  /**
   * Token of your choice in the URL, so that it stays the same when you create the link again: 16 to 64
   * characters of `A-Za-z0-9_-`. Everyone who guesses it may use the port. If another key chose it for the
   * port, the call fails with `link_token_in_use`.
   */
  token?: string;
  /** Accepted for compatibility and ignored: the server configures the domain (`ports_domain`). */
  hostname?: string;
}

/** A signed link to a port. */
export interface PortLink {
  /** Everyone who has it may use the port until `expiresAt`. */
  url: string;
  port: number;
  name: string | undefined;
  /** The link's token: `?isolet-token=` on the port's host name. */
  token: string;
  expiresAt: Date;
}

/** A port that has at least one link. */
export interface ExposedPort {
  /** Address without the token. */
  url: string;
  port: number;
  name: string | undefined;
  /** Whether a program is listening on the port. */
  status: "active" | "inactive";
}

/** List listening ports. */
export async function listPorts(client: Isolet, path: string): Promise<ListeningPort[]> {
  return client.json(`${path}/ports`);
}

/** Create a link. */
export async function expose(
  client: Isolet,
  path: string,
  port: number,
  options: ExposeOptions,
): Promise<PortLink> {
  const json: Record<string, unknown> = { port };
  if (options.name !== undefined) json["name"] = options.name;
  if (options.ttlSeconds !== undefined) json["ttl_s"] = options.ttlSeconds;
  if (options.token !== undefined) json["token"] = options.token;
  const link = await client.json<LinkJson>(`${path}/links`, { json });
  const { url, token, name } = link;
  return { url, port: link.port, name: name ?? undefined, token, expiresAt: new Date(link.expires_at) };
}

/** List ports that have links. */
export async function listExposedPorts(client: Isolet, path: string): Promise<ExposedPort[]> {
  const [all, listening] = await Promise.all([
    client.json<LinkJson[]>(`${path}/links`),
    listPorts(client, path),
  ]);
  const active = new Set(listening.map((entry) => entry.port));
  return all.map(({ url, port, name }) => {
    const status = active.has(port) ? ("active" as const) : ("inactive" as const);
    return { url, port, name: name ?? undefined, status };
  });
}

/** URL path that proxies to a program's port. */
export function portPath(path: string, port: number, target: string): string {
  return `${path}/ports/${port}${target.startsWith("/") ? "" : "/"}${target}`;
}

/** Request to a program's port. */
export type PortRequest = Pick<RequestInit, "method" | "headers" | "body" | "signal" | "redirect">;

/** Send a request to a program's port. */
export async function requestPort(client: Isolet, at: string, request: PortRequest): Promise<Response> {
  const headers = new Headers(request.headers);
  for (const [name, value] of Object.entries(client.headers())) headers.set(name, value);
  const init: RequestInit & { duplex?: string } = { ...request, headers };
  if (request.body instanceof ReadableStream) init.duplex = "half";
  return fetch(client.url + at, init);
}

/** Revoke all links to a port. */
export async function unexpose(client: Isolet, path: string, port: number): Promise<void> {
  const call: Call = { method: "DELETE" };
  await client.send(`${path}/links/${port}`, call);
}

/** The server's JSON of a link. */
interface LinkJson {
  port: number;
  name: string | null;
  url: string;
  token: string;
  expires_at: string;
}
