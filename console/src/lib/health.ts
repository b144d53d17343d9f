/** Server health from `/health`, read every 30 s and whenever the event stream breaks or reconnects. */

import { signal } from "@preact/signals";
import { streamState } from "./events";

/** Latest answer; `undefined` before the first. */
export const health = signal<{ status: string; version: string } | undefined>(undefined);

const EVERY_MS = 30_000;

async function ask(): Promise<void> {
  try {
    const response = await fetch("/health", { cache: "no-store", signal: AbortSignal.timeout(5000) });
    health.value = (await response.json()) as { status: string; version: string };
  } catch {
    health.value = health.value && { ...health.value, status: "lost" };
  }
}

/** Start polling. */
export function start(): void {
  void ask();
  setInterval(() => !document.hidden && void ask(), EVERY_MS);
  let before = "";
  streamState.subscribe(({ state }) => {
    if (state !== before && state !== "connecting") void ask();
    before = state;
  });
}
