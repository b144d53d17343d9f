/** What happens on the server, as it happens: one stream for the whole console. */

import { events, IsoletError } from "@isolet/sdk";
import { signal } from "@preact/signals";
import { api, client } from "./api";

/** One event; `kind` is its name. */
export interface Happened {
  kind: string;
  id: number;
  at_ms: number;
  sandbox: string;
  session?: string | null;
  command?: string;
  code?: number | null;
  cause?: string;
}

/** How the console stands with the server. */
export type Link =
  | { state: "connecting" }
  | { state: "live" }
  | { state: "lost"; why: string; next: number }
  | { state: "refused"; why: string; hint: string };

/** How it stands now. */
export const link = signal<Link>({ state: "connecting" });

type Hears = (event: Happened) => void;
const hearers = new Set<Hears>();
const renewers = new Set<() => void>();

/** Calls `hears` for each event until the function that it gives is called. */
export function hear(hears: Hears): () => void {
  hearers.add(hears);
  return () => void hearers.delete(hears);
}

/** Calls `renew` whenever events may have been missed: what is known is to be read anew. */
export function onRenew(renew: () => void): () => void {
  renewers.add(renew);
  return () => void renewers.delete(renew);
}

const WAIT_MS = [500, 1000, 2000, 4000, 8000];
/** The server says something every 15 s: a stream that is silent for longer is dead. */
const SILENCE_MS = 45_000;
let again: (() => void) | undefined;

/** Does not wait any longer before the next try. */
export function retry(): void {
  again?.();
}

/** Follows the server for as long as `signal` lasts. */
export async function follow(signal: AbortSignal): Promise<void> {
  let tries = 0;
  while (!signal.aborted) {
    let why = "the server ended the stream of events";
    try {
      await stream(signal, () => (tries = 0));
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof IsoletError && (error.status === 401 || error.status === 403)) {
        link.value = { state: "refused", why: error.message, hint: error.hint };
        return;
      }
      why = error instanceof IsoletError ? error.message : "the connection was lost";
    }
    if (signal.aborted) return;
    const wait = WAIT_MS[Math.min(tries++, WAIT_MS.length - 1)]! * (0.8 + Math.random() * 0.4);
    link.value = { state: "lost", why, next: Date.now() + wait };
    await pause(wait, signal);
  }
}

async function stream(signal: AbortSignal, began: () => void): Promise<void> {
  const silent = new AbortController();
  const either = AbortSignal.any([signal, silent.signal]);
  const response = await api().send("/v1/events", { headers: { accept: "text/event-stream" }, signal: either });
  began();
  link.value = { state: "live" };
  renewers.forEach((renew) => renew());
  let timer = setTimeout(() => silent.abort(), SILENCE_MS);
  const watched = response.body!.pipeThrough(
    new TransformStream<Uint8Array, Uint8Array>({
      transform(part, out) {
        clearTimeout(timer);
        timer = setTimeout(() => silent.abort(), SILENCE_MS);
        out.enqueue(part);
      },
    }),
  );
  try {
    for await (const { event, data } of events(watched)) {
      const said = JSON.parse(data) as Omit<Happened, "kind">;
      if (event === "gap") renewers.forEach((renew) => renew());
      else hearers.forEach((hears) => hears({ ...said, kind: event }));
    }
  } finally {
    clearTimeout(timer);
  }
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((wake) => {
    const done = (): void => {
      clearTimeout(timer);
      removeEventListener("online", done);
      signal.removeEventListener("abort", done);
      again = undefined;
      wake();
    };
    const timer = setTimeout(done, ms);
    addEventListener("online", done);
    signal.addEventListener("abort", done);
    again = done;
  });
}

let running: AbortController | undefined;

/** Follows whoever is signed in, from now on. */
export function start(): void {
  client.subscribe((now) => {
    running?.abort();
    running = undefined;
    if (!now) return;
    link.value = { state: "connecting" };
    running = new AbortController();
    void follow(running.signal);
  });
}
