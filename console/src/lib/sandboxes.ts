/** All sandboxes of the key, updated by events, and the usage of visible ones. */

import { IsoletError } from "@isolet/sdk";
import { computed, signal } from "@preact/signals";
import { api, at, client, listAll, describeError, type Sandbox, type Session } from "./api";
import { onEvent, onReloadNeeded } from "./events";

/** Limit on the number of sandboxes shown. */
const SANDBOXES_MAX = 5000;
/** Polling interval for the usage of visible sandboxes. */
const USAGE_MS = 5000;
/** Limit on requests per polling round. */
const VISIBLE_MAX = 40;

/** Measured resource usage of a sandbox. */
export interface MeasuredUsage {
  /** Memory in bytes. */
  memory: number;
  /** Thousandths of a core between the last two measurements; `undefined` at the first. */
  cpu: number | undefined;
  usage: NonNullable<Sandbox["usage"]>;
  at: number;
}

/** Sandboxes by id; `undefined` until the list was read. */
export const sandboxes = signal<ReadonlyMap<string, Sandbox> | undefined>(undefined);
/** Why the list could not be read. */
export const loadError = signal<{ message: string; hint: string } | undefined>(undefined);
/** Usage by sandbox id. */
export const measured = signal<ReadonlyMap<string, MeasuredUsage>>(new Map());
/** Sessions by sandbox id, for sandboxes that were on display. */
export const sessions = signal<ReadonlyMap<string, Session[]>>(new Map());
/** Sandboxes sorted by id. */
export const sorted = computed(() => [...(sandboxes.value?.values() ?? [])]);

function store(sandbox: Sandbox): void {
  const next = new Map(sandboxes.value);
  const known = next.has(sandbox.id);
  next.set(sandbox.id, sandbox);
  sandboxes.value = known ? next : new Map([...next].sort(([a], [b]) => (a < b ? -1 : 1)));
  measure(sandbox);
}

function remove(id: string): void {
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
    // CPU time restarts at 0 after a sleep.
    const cpu = before && spent >= 0 ? (spent / (now - before.at)) * 1000 : undefined;
    next.set(id, { memory: usage.memory_bytes, cpu, usage, at: now });
  }
  measured.value = next;
}

/** Read the whole list again. */
export async function reload(): Promise<void> {
  try {
    const all = await listAll<Sandbox>("/v1/sandboxes?limit=1000", SANDBOXES_MAX);
    sandboxes.value = new Map(all.map((one) => [one.id, one]));
    loadError.value = undefined;
    for (const id of sessions.value.keys()) void readSessions(id);
  } catch (error) {
    loadError.value = describeError(error);
  }
}

/** Read a sandbox again, with its usage. */
export async function read(id: string): Promise<void> {
  try {
    store(await api().json<Sandbox>(at(id)));
  } catch (error) {
    if (error instanceof IsoletError && error.status === 404) remove(id);
  }
}

/** Read a sandbox's sessions. */
export async function readSessions(id: string): Promise<void> {
  try {
    const all = await listAll<Session>(`${at(id, "sessions")}?limit=1000`, 1000);
    sessions.value = new Map(sessions.value).set(id, all);
  } catch {
    const next = new Map(sessions.value);
    if (next.delete(id)) sessions.value = next;
  }
}

/** Store a sandbox that an API call returned. */
export const updateSandbox = store;

const due = new Map<string, ReturnType<typeof setTimeout>>();

/** Combine calls for several events within a short time into one. */
function debounce(name: string, call: () => void): void {
  if (due.has(name)) return;
  due.set(
    name,
    setTimeout(() => {
      due.delete(name);
      call();
    }, 120),
  );
}

const visibleSandboxes = new Map<string, number>();

/**
 * Mark a sandbox as visible.
 *
 * @returns a function that removes the mark.
 */
export function watchSandbox(id: string): () => void {
  visibleSandboxes.set(id, (visibleSandboxes.get(id) ?? 0) + 1);
  if (!measured.peek().has(id)) debounce(`look ${id}`, () => void read(id));
  if (!sessions.peek().has(id)) debounce(`sessions ${id}`, () => void readSessions(id));
  return () => {
    const left = (visibleSandboxes.get(id) ?? 1) - 1;
    if (left > 0) visibleSandboxes.set(id, left);
    else visibleSandboxes.delete(id);
  };
}

async function refreshUsage(): Promise<void> {
  if (document.hidden || !client.peek()) return;
  const all = [...visibleSandboxes.keys()].filter((id) => sandboxes.peek()?.get(id)?.state === "running");
  for (const id of all.slice(0, VISIBLE_MAX)) await read(id);
}

/** Start updating. */
export function start(): void {
  onReloadNeeded(() => void reload());
  client.subscribe((now) => {
    if (now) return;
    sandboxes.value = undefined;
    sessions.value = new Map();
    measured.value = new Map();
  });
  onEvent(({ kind, sandbox }) => {
    if (kind === "destroyed") remove(sandbox);
    else if (kind.startsWith("session_") || kind.startsWith("command_")) {
      if (visibleSandboxes.has(sandbox)) debounce(`sessions ${sandbox}`, () => void readSessions(sandbox));
    } else debounce(`look ${sandbox}`, () => void read(sandbox));
  });
  const round = async (): Promise<void> => {
    await refreshUsage().catch(() => undefined);
    setTimeout(() => void round(), USAGE_MS);
  };
  setTimeout(() => void round(), USAGE_MS);
}
