/** All sandboxes of the key, kept as they are by events; and what the visible ones use. */

import { IsoletError } from "@isolet/sdk";
import { computed, signal } from "@preact/signals";
import { api, at, client, listed, told, type Sandbox, type Session } from "./api";
import { hear, onRenew } from "./events";

/** More than these are not shown. */
const SANDBOXES_MAX = 5000;
/** Usage is asked for this often, of what is in sight. */
const USAGE_MS = 5000;
/** How many in sight are asked in one round. */
const IN_SIGHT_MAX = 40;

/** What is known of a sandbox beside its record. */
export interface Measured {
  /** Bytes of memory now. */
  memory: number;
  /** Thousandths of a core, between the last two looks; `undefined` at the first. */
  cpu: number | undefined;
  usage: NonNullable<Sandbox["usage"]>;
  at: number;
}

/** By id. `undefined` until they were read once. */
export const sandboxes = signal<ReadonlyMap<string, Sandbox> | undefined>(undefined);
/** Why they could not be read. */
export const failed = signal<{ message: string; hint: string } | undefined>(undefined);
/** What they use, by id. */
export const measured = signal<ReadonlyMap<string, Measured>>(new Map());
/** Their sessions, by id; of those that somebody looked at. */
export const sessions = signal<ReadonlyMap<string, Session[]>>(new Map());
/** Sorted by id. */
export const sorted = computed(() => [...(sandboxes.value?.values() ?? [])]);

function put(sandbox: Sandbox): void {
  const next = new Map(sandboxes.value);
  const known = next.has(sandbox.id);
  next.set(sandbox.id, sandbox);
  sandboxes.value = known ? next : new Map([...next].sort(([a], [b]) => (a < b ? -1 : 1)));
  measure(sandbox);
}

function drop(id: string): void {
  if (!sandboxes.value?.has(id)) return;
  const next = new Map(sandboxes.value);
  next.delete(id);
  sandboxes.value = next;
}

function measure({ id, usage }: Sandbox): void {
  const next = new Map(measured.value);
  const before = next.get(id);
  if (!usage) {
    if (!next.delete(id)) return;
  } else {
    const now = performance.now();
    const spent = before ? usage.cpu_ms - before.usage.cpu_ms : -1;
    // One that slept meanwhile begins at 0.
    const cpu = before && spent >= 0 ? (spent / (now - before.at)) * 1000 : undefined;
    next.set(id, { memory: usage.memory_bytes, cpu, usage, at: now });
  }
  measured.value = next;
}

/** Reads all of them anew. */
export async function renew(): Promise<void> {
  try {
    const all = await listed<Sandbox>("/v1/sandboxes?limit=1000", SANDBOXES_MAX);
    sandboxes.value = new Map(all.map((one) => [one.id, one]));
    failed.value = undefined;
    for (const id of sessions.value.keys()) void readSessions(id);
  } catch (error) {
    failed.value = told(error);
  }
}

/** Reads one anew, with what it uses. */
export async function read(id: string): Promise<void> {
  try {
    put(await api().json<Sandbox>(at(id)));
  } catch (error) {
    if (error instanceof IsoletError && error.status === 404) drop(id);
  }
}

/** Reads a sandbox's sessions. */
export async function readSessions(id: string): Promise<void> {
  try {
    const all = await listed<Session>(`${at(id, "sessions")}?limit=1000`, 1000);
    sessions.value = new Map(sessions.value).set(id, all);
  } catch {
    const next = new Map(sessions.value);
    if (next.delete(id)) sessions.value = next;
  }
}

/** A sandbox as a call has just told of it. */
export const known = put;

const due = new Map<string, ReturnType<typeof setTimeout>>();

/** Several events of a moment cost one call. */
function soon(name: string, call: () => void): void {
  if (due.has(name)) return;
  due.set(
    name,
    setTimeout(() => {
      due.delete(name);
      call();
    }, 120),
  );
}

const inSight = new Map<string, number>();

/** Says that a sandbox is in sight until the function that it gives is called. */
export function watch(id: string): () => void {
  inSight.set(id, (inSight.get(id) ?? 0) + 1);
  if (!measured.peek().has(id)) soon(`look ${id}`, () => void read(id));
  if (!sessions.peek().has(id)) soon(`sessions ${id}`, () => void readSessions(id));
  return () => {
    const left = (inSight.get(id) ?? 1) - 1;
    if (left > 0) inSight.set(id, left);
    else inSight.delete(id);
  };
}

async function look(): Promise<void> {
  if (document.hidden || !client.peek()) return;
  const all = [...inSight.keys()].filter((id) => sandboxes.peek()?.get(id)?.state === "running");
  for (const id of all.slice(0, IN_SIGHT_MAX)) await read(id);
}

/** Keeps all of this as it is, from now on. */
export function start(): void {
  onRenew(() => void renew());
  client.subscribe((now) => {
    if (now) return;
    sandboxes.value = undefined;
    sessions.value = new Map();
    measured.value = new Map();
  });
  hear(({ kind, sandbox }) => {
    if (kind === "destroyed") drop(sandbox);
    else if (kind.startsWith("session_") || kind.startsWith("command_")) {
      if (inSight.has(sandbox)) soon(`sessions ${sandbox}`, () => void readSessions(sandbox));
    } else soon(`look ${sandbox}`, () => void read(sandbox));
  });
  const round = async (): Promise<void> => {
    await look().catch(() => undefined);
    setTimeout(() => void round(), USAGE_MS);
  };
  setTimeout(() => void round(), USAGE_MS);
}
