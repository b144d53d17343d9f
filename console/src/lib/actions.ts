/** Actions on sandboxes that several pages offer. */

import { IsoletError } from "@isolet/sdk";
import { signal } from "@preact/signals";
import { closeDialog, confirm, confirmByName } from "../parts/dialog";
import { api, at, listAll, type Sandbox, type Session } from "./api";
import { visibleName } from "./format";
import { attempt, notifySuccess } from "./notice";
import { go, route } from "./route";
import { updateSandbox, sandboxes } from "./sandboxes";

/** What did not survive the last sleep, as reported by the first response after waking; by sandbox. */
export const sleepLosses = signal<ReadonlyMap<string, Lost>>(new Map());

/** Losses of a sleep, and when they were reported. */
export interface Lost {
  what: string[];
  shells: { session: string; why: string; saved_at_ms: number | null }[];
  at: number;
}

/** Store the losses that a response reports, if any. */
export function recordLosses(sandbox: string, answer: unknown): void {
  const { sleepLosses: what, lost_state: shells } = (answer ?? {}) as { sleepLosses?: string[]; lost_state?: Lost["shells"] };
  if (!Array.isArray(what) || what.length === 0) return;
  sleepLosses.value = new Map(sleepLosses.value).set(sandbox, { what, shells: shells ?? [], at: Date.now() });
}

/** Called before a sandbox is put to sleep, to close connections that would prevent it. */
export const sleepHandlers = new Set<(id: string) => void>();
/** Attempts while the server still counts connections that were just closed. */
const ATTEMPTS_MAX = 8;
const RETRY_DELAYS_MS = 150;

async function sleepWithRetry(id: string): Promise<Sandbox> {
  for (let attempts = 1; ; attempts++) {
    try {
      return await api().json<Sandbox>(at(id, "sleep"), { method: "POST", json: {} });
    } catch (error) {
      const busy = error instanceof IsoletError && error.code === "sandbox_in_use";
      if (!busy || attempts >= ATTEMPTS_MAX) throw error;
      await new Promise((wake) => setTimeout(wake, RETRY_DELAYS_MS));
    }
  }
}

/** What runs in a sandbox and would end: background processes, and commands of sessions. */
async function running(id: string): Promise<string[]> {
  const [processes, sessions] = await Promise.all([
    api().json<{ id: string; command: string; status: string }[]>(at(id, "processes")),
    listAll<Session>(`${at(id, "sessions")}?limit=1000`, 1000),
  ]);
  return [
    ...processes.filter(({ status }) => status === "running").map((one) => `process ${one.id}: ${one.command}`),
    ...sessions.filter(({ busy }) => busy).map((one) => `a command in the session ${one.id}`),
  ];
}

/** Number of running programs that the question names. */
const NAMED_MAX = 4;

/** Put a sandbox to sleep. Asks first if that would end something. */
export async function sleep(id: string): Promise<void> {
  const all = await attempt(`Could not put ${id} to sleep`, () => running(id));
  if (!all) return;
  if (all.length === 0) return sleepNow(id);
  const named = all.slice(0, NAMED_MAX).map((one) => visibleName(one).slice(0, 120));
  if (all.length > NAMED_MAX) named.push(`and ${all.length - NAMED_MAX} more`);
  confirm({
    title: "Put to sleep",
    label: `This ends what runs in ${id}:`,
    items: named,
    act: "Put to sleep",
    run: async () => {
      closeDialog();
      await sleepNow(id);
    },
  });
}

async function sleepNow(id: string): Promise<void> {
  const here = route.peek();
  // These tabs hold connections, which prevent sleep.
  if (here.page === "sandbox" && here.id === id && (here.tab === "terminal" || here.tab === "commands")) {
    go("sandboxes", id, "sessions");
  }
  sleepHandlers.forEach((release) => release(id));
  const now = await attempt(`Could not put ${id} to sleep`, () => sleepWithRetry(id));
  if (now) {
    updateSandbox(now);
    notifySuccess(`${id} is asleep`);
  }
}

/** Wake a sandbox, by running an empty command. */
export async function wake(id: string): Promise<boolean> {
  const answer = await attempt(`Could not wake ${id}`, () =>
    api().json<unknown>(at(id, "exec"), { json: { command: ":" } }),
  );
  recordLosses(id, answer);
  if (answer) notifySuccess(`${id} is awake`);
  return answer !== undefined;
}

/** Resume a paused sandbox. */
export async function resume(id: string): Promise<void> {
  const now = await attempt(`Could not resume ${id}`, () => api().json<Sandbox>(at(id, "resume"), { method: "POST" }));
  if (now) {
    updateSandbox(now);
    notifySuccess(`${id} continues`);
  }
}

/** Ask for confirmation, then destroy a sandbox. */
export function destroy(id: string): void {
  const persistent = sandboxes.peek()?.get(id)?.persistent;
  confirmByName({
    title: "Destroy sandbox",
    name: id,
    label: `This ends all its shells, terminals and programs${persistent === false ? "" : ", and deletes all its files"}. This cannot be undone.`,
    act: "Destroy",
    run: async () => {
      try {
        await api().send(at(id), { method: "DELETE" });
      } catch (error) {
        if (!(error instanceof IsoletError && error.status === 404)) throw error;
      }
      notifySuccess(`${id} was destroyed`);
      const here = route.peek();
      if (here.page === "sandbox" && here.id === id) go("sandboxes");
    },
  });
}
