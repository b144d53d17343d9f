/** Actions on sandboxes that several pages offer. */

import { IsoletError } from "@isolet/sdk";
import { signal } from "@preact/signals";
import { confirmByName } from "../parts/dialog";
import { api, at, type Sandbox } from "./api";
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

/** Put a sandbox to sleep. */
export async function sleep(id: string): Promise<void> {
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
