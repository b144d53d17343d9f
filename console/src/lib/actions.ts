/** What can be done to a sandbox, wherever in the console it is asked for. */

import { IsoletError } from "@isolet/sdk";
import { signal } from "@preact/signals";
import { confirmByName } from "../parts/dialog";
import { api, at, type Sandbox } from "./api";
import { attempt, done } from "./notice";
import { go, route } from "./route";
import { known, sandboxes } from "./sandboxes";

/** What a sleep has cost, as the first answer after a waking told; by sandbox. */
export const lost = signal<ReadonlyMap<string, Lost>>(new Map());

/** What was lost, and when it was told. */
export interface Lost {
  what: string[];
  shells: { session: string; why: string; saved_at_ms: number | null }[];
  at: number;
}

/** Keeps what an answer said of losses. */
export function heardLost(sandbox: string, answer: unknown): void {
  const { lost: what, lost_state: shells } = (answer ?? {}) as { lost?: string[]; lost_state?: Lost["shells"] };
  if (!Array.isArray(what) || what.length === 0) return;
  lost.value = new Map(lost.value).set(sandbox, { what, shells: shells ?? [], at: Date.now() });
}

/** What of this page holds a sandbox awake, and lets go when it is put to sleep. */
export const holders = new Set<(id: string) => void>();
/** How often it is asked again while the server still counts who has just let go. */
const TRIES = 8;
const AGAIN_MS = 150;

async function asleep(id: string): Promise<Sandbox> {
  for (let tries = 1; ; tries++) {
    try {
      return await api().json<Sandbox>(at(id, "sleep"), { method: "POST", json: {} });
    } catch (error) {
      const busy = error instanceof IsoletError && error.code === "sandbox_in_use";
      if (!busy || tries >= TRIES) throw error;
      await new Promise((wake) => setTimeout(wake, AGAIN_MS));
    }
  }
}

/** Puts a sandbox to sleep. */
export async function sleep(id: string): Promise<void> {
  const here = route.peek();
  // What is looked at there is attached.
  if (here.page === "sandbox" && here.id === id && (here.tab === "terminal" || here.tab === "commands")) {
    go("sandboxes", id, "sessions");
  }
  holders.forEach((release) => release(id));
  const now = await attempt(`Cannot put ${id} to sleep`, () => asleep(id));
  if (now) {
    known(now);
    done(`${id} sleeps`);
  }
}

/** Wakes a sandbox: by the smallest command there is. */
export async function wake(id: string): Promise<boolean> {
  const answer = await attempt(`Cannot wake ${id}`, () =>
    api().json<unknown>(at(id, "exec"), { json: { command: ":" } }),
  );
  heardLost(id, answer);
  if (answer) done(`${id} is awake`);
  return answer !== undefined;
}

/** Destroys a sandbox, when its name is typed. */
export function destroy(id: string): void {
  const persistent = sandboxes.peek()?.get(id)?.persistent;
  confirmByName({
    title: "Destroy sandbox",
    name: id,
    says: `Everything in it ends now: shells, terminals, programs${persistent === false ? "" : ", and all of its files"}. This cannot be undone.`,
    act: "Destroy",
    run: async () => {
      try {
        await api().send(at(id), { method: "DELETE" });
      } catch (error) {
        if (!(error instanceof IsoletError && error.status === 404)) throw error;
      }
      done(`${id} is destroyed`);
      const here = route.peek();
      if (here.page === "sandbox" && here.id === id) go("sandboxes");
    },
  });
}
