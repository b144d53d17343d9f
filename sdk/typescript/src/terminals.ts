/** A sandbox's terminals: attached, listed, ended, recorded. */

import type { Isolet } from "./client.js";
import type { TerminalClient } from "./frames.js";
import { here } from "./socket.js";
import { Terminal } from "./terminal.js";
import type { TerminalOptions } from "./terminal-options.js";

/** A terminal that runs. */
export interface TerminalInfo {
  session: string;
  /** Names this run of it. */
  terminal: string;
  /** Of its program, inside. */
  pid: number;
  /** Program and arguments. */
  command: string[];
  cols: number;
  rows: number;
  /** Bytes of output so far. */
  offset: number;
  /** Set by its program: nothing that can be trusted. */
  title: string;
  clients: TerminalClient[];
  /** Since it was opened, in ms. */
  ageMs: number;
}

/** A recording, in asciicast version 2. */
export interface Recording {
  id: string;
  session: string;
  terminal: string;
  /** ISO 8601. */
  startedAt: string;
  /** ISO 8601; `null` while it grows. */
  endedAt: string | null;
  /** In bytes. */
  size: number;
  /** It lacks its end: it was too long, or the disk was full. */
  cut: boolean;
}

/** What a ticket is to open. */
export interface TicketOptions {
  session?: string;
  /** `"terminal"` unless told. */
  use?: "terminal" | "shell" | "port";
  /** Which, for `port`. */
  port?: number;
  mode?: "edit" | "view";
  /** Seconds; 30 unless told, at most 300. */
  ttl?: number;
}

/** Opens one WebSocket in place of a key. */
export interface Ticket {
  ticket: string;
  /** ISO 8601. */
  expiresAt: string;
}

/** Takes a ticket for a sandbox that need not be there yet. */
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

/** Attaches to the terminal of a session. `path` is the sandbox's, once it is there. */
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
    if (here().headers) return { url: url + query, headers: client.headers() };
    const { mode = "edit" } = options;
    const opens = await ticket(client, sandbox, { session, mode });
    query.set("ticket", opens.ticket);
    return { url: url + query };
  }, options);
}

interface InfoSent extends Omit<TerminalInfo, "ageMs"> {
  age_ms: number;
}

interface RecordingSent extends Omit<Recording, "startedAt" | "endedAt"> {
  started_at: string;
  ended_at: string | null;
}

/** The terminals that run in the sandbox at `path`. */
export async function terminals(client: Isolet, path: string): Promise<TerminalInfo[]> {
  const all = await client.json<InfoSent[]>(`${path}/terminals`);
  return all.map(({ age_ms, ...rest }) => ({ ...rest, ageMs: age_ms }));
}

/** The recordings of the sandbox at `path`. */
export async function recordings(client: Isolet, path: string): Promise<Recording[]> {
  const all = await client.json<RecordingSent[]>(`${path}/recordings`);
  return all.map(({ started_at, ended_at, ...rest }) => ({ ...rest, startedAt: started_at, endedAt: ended_at }));
}
