/** Ports inside a sandbox: who listens, links that lead there, and requests. */

import type { Isolet } from "./client.js";
import type { Call } from "./transport.js";

/** A port on which something listens. */
export interface ListeningPort {
  /** 1 to 65535. */
  port: number;
  /** Addresses that it is bound to; `0.0.0.0` and `::` are all of the sandbox's. */
  addresses: string[];
  /** Where it is reached on the server, with a key. */
  path: string;
}

/** How a port is exposed. */
export interface ExposeOptions {
  /** What it is called in the list, at most 128 bytes. */
  name?: string;
  /** Seconds that the link lives: 3600 unless told, at most 2592000 (30 days). */
  ttlSeconds?: number;
  /** Taken for programs that give it, and not used: the domain is the server's (`ports_domain`). */
  hostname?: string;
}

/** A link to a port. */
export interface PortLink {
  /** Who has it, has the right to the port. */
  url: string;
  port: number;
  name: string | undefined;
  /** The right alone: `?isolet-token=` on the port's own host. */
  token: string;
  expiresAt: Date;
}

/** A port that links lead to. */
export interface ExposedPort {
  /** Its address, without the right to it. */
  url: string;
  port: number;
  name: string | undefined;
  /** Whether something listens there now. */
  status: "active" | "inactive";
}

/** The ports on which something listens. */
export async function listening(client: Isolet, path: string): Promise<ListeningPort[]> {
  return client.json(`${path}/ports`);
}

/** Makes a link. */
export async function expose(
  client: Isolet,
  path: string,
  port: number,
  options: ExposeOptions,
): Promise<PortLink> {
  const json: Record<string, unknown> = { port };
  if (options.name !== undefined) json["name"] = options.name;
  if (options.ttlSeconds !== undefined) json["ttl_s"] = options.ttlSeconds;
  const made = await client.json<Told>(`${path}/links`, { json });
  const { url, token, name } = made;
  return { url, port: made.port, name: name ?? undefined, token, expiresAt: new Date(made.expires_at) };
}

/** The ports that links lead to. */
export async function exposed(client: Isolet, path: string): Promise<ExposedPort[]> {
  const [all, open] = await Promise.all([
    client.json<Told[]>(`${path}/links`),
    listening(client, path),
  ]);
  const active = new Set(open.map((one) => one.port));
  return all.map(({ url, port, name }) => {
    const status = active.has(port) ? ("active" as const) : ("inactive" as const);
    return { url, port, name: name ?? undefined, status };
  });
}

/** A path of the program on a port. */
export function within(path: string, port: number, target: string): string {
  return `${path}/ports/${port}${target.startsWith("/") ? "" : "/"}${target}`;
}

/** What a request to a port carries; the answer is the program's, whatever its status. */
export type PortRequest = Pick<RequestInit, "method" | "headers" | "body" | "signal" | "redirect">;

/** Sends a request to a port. */
export async function ask(client: Isolet, at: string, request: PortRequest): Promise<Response> {
  const headers = new Headers(request.headers);
  for (const [name, value] of Object.entries(client.headers())) headers.set(name, value);
  const init: RequestInit & { duplex?: string } = { ...request, headers };
  if (request.body instanceof ReadableStream) init.duplex = "half";
  return fetch(client.url + at, init);
}

/** Withdraws a port. */
export async function withdraw(client: Isolet, path: string, port: number): Promise<void> {
  const call: Call = { method: "DELETE" };
  await client.send(`${path}/links/${port}`, call);
}

/** As the server says it. */
interface Told {
  port: number;
  name: string | null;
  url: string;
  token: string;
  expires_at: string;
}
