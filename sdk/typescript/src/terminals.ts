/** Terminals, recordings and tickets of a sandbox. */

import type { Isolet } from "./client.js";
import type { TerminalClient } from "./frames.js";
import { currentPlatform } from "./socket.js";
import { Terminal } from "./terminal.js";
import type { TerminalOptions } from "./terminal-options.js";

/** A running terminal. */
export interface TerminalInfo {
  session: string;
  /** Id of this run of the terminal. */
  terminal: string;
  /** Process id of its program, inside the sandbox. */
  pid: number;
  /** Program and arguments. */
  command: string[];
  cols: number;
  rows: number;
  /** Bytes of output so far. */
  offset: number;
  /** Set by the program inside: do not trust it. */
  title: string;
  clients: TerminalClient[];
  /** Time since the terminal was opened, in milliseconds. */
  ageMs: number;
}

/** A terminal recording in asciicast version 2. */
export interface Recording {
  id: string;
  session: string;
  terminal: string;
  /** ISO 8601. */
  startedAt: string;
  /** ISO 8601; `null` while recording. */
  endedAt: string | null;
  /** In bytes. */
  size: number;
  /** Incomplete: size limit reached, or disk full. */
  cut: boolean;
}

/** What a ticket opens. */
export interface TicketOptions {
  /** `default` by default; for a shell, a private one by default. */
  session?: string;
  /** `"terminal"` by default. */
  use?: "terminal" | "shell" | "port";
  /** Port number, for `port`. */
  port?: number;
  /** `"view"` allows only to watch a running terminal. */
  mode?: "edit" | "view";
  /** Lifetime in seconds; 30 by default, at most 300. */
  ttl?: number;
}

/** A one-time ticket that opens one WebSocket without a key. */
export interface Ticket {
  /** Value of the query parameter `ticket`. */
  ticket: string;
  /** ISO 8601. */
  expiresAt: string;
}

/** Create a ticket. The sandbox need not exist yet. */
export async function ticket(client: Isolet, sandbox: string, options: TicketOptions): Promise<Ticket> {
  const { session, use = "terminal", mode, port, ttl } = options;
  const json: Record<string, unknown> = { sandbox, use };
  if (session !== undefined) json["session"] = session;
  if (mode !== undefined) json["mode"] = mode;
  if (port !== undefined) json["port"] = port;
  if (ttl !== undefined) json["ttl_s"] = ttl;
  const made = await client.json<{ ticket: string; expires_at: string }>("/v1/tickets", { json });
  return { ticket: made.ticket, expiresAt: made.expires_at };
}

/** Attach to a session's terminal. `path` returns the sandbox's URL path, after creating it if needed. */
export function attach(
  client: Isolet,
  sandbox: string,
  session: string,
  path: () => Promise<string>,
  options: TerminalOptions,
): Terminal {
  return new Terminal(async (query) => {
    query.set("session", session);
    const url = client.url.replace(/^http/, "ws") + (await path()) + "/terminal?";
    if (currentPlatform().headers) return { url: url + query, headers: client.headers() };
    const { mode = "edit" } = options;
    const opens = await ticket(client, sandbox, { session, mode });
    query.set("ticket", opens.ticket);
    return { url: url + query };
  }, options);
}

interface TerminalJson extends Omit<TerminalInfo, "ageMs"> {
  age_ms: number;
}

interface RecordingJson extends Omit<Recording, "startedAt" | "endedAt"> {
  started_at: string;
  ended_at: string | null;
}

/** List the running terminals of the sandbox at `path`. */
export async function terminals(client: Isolet, path: string): Promise<TerminalInfo[]> {
  const all = await client.json<TerminalJson[]>(`${path}/terminals`);
  return all.map(({ age_ms, ...rest }) => ({ ...rest, ageMs: age_ms }));
}

/** List the recordings of the sandbox at `path`. */
export async function recordings(client: Isolet, path: string): Promise<Recording[]> {
  const all = await client.json<RecordingJson[]>(`${path}/recordings`);
  return all.map(({ started_at, ended_at, ...rest }) => ({ ...rest, startedAt: started_at, endedAt: ended_at }));
}
