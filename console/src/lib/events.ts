/** Event stream of the server, shared by the whole console. */

import { events, IsoletError } from "@isolet/sdk";
import { signal } from "@preact/signals";
import { api, client } from "./api";

/** An event; `kind` is its name. */
export interface ServerEvent {
  kind: string;
  id: number;
  at_ms: number;
  sandbox: string;
  session?: string | null;
  command?: string;
  code?: number | null;
  cause?: string;
}

/** State of the event stream. */
export type StreamState =
  | { state: "connecting" }
  | { state: "live" }
  | { state: "lost"; why: string; next: number }
  | { state: "refused"; why: string; hint: string };

/** Current state of the event stream. */
export const streamState = signal<StreamState>({ state: "connecting" });

type EventListener = (event: ServerEvent) => void;
const listeners = new Set<EventListener>();
const reloadHandlers = new Set<() => void>();

/**
 * Call `listener` for each event.
 *
 * @returns a function that removes the listener.
 */
export function onEvent(listener: EventListener): () => void {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

/**
 * Call `renew` whenever events may have been missed, so that the data must be read again.
 *
 * @returns a function that removes the callback.
 */
export function onReloadNeeded(renew: () => void): () => void {
  reloadHandlers.add(renew);
  return () => void reloadHandlers.delete(renew);
}

const WAIT_MS = [500, 1000, 2000, 4000, 8000];
/** The server sends a heartbeat every 15 s: a stream that is silent for longer is dead. */
const SILENCE_MS = 45_000;
let skipDelay: (() => void) | undefined;

/** Reconnect now instead of waiting for the next attempt. */
export function retry(): void {
  skipDelay?.();
}

/** Follow the event stream and reconnect until `signal` is aborted. */
export async function follow(signal: AbortSignal): Promise<void> {
  let attempts = 0;
  while (!signal.aborted) {
    let why = "the server ended the event stream";
    try {
      await stream(signal, () => (attempts = 0));
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof IsoletError && (error.status === 401 || error.status === 403)) {
        streamState.value = { state: "refused", why: error.message, hint: error.hint };
        return;
      }
      why = error instanceof IsoletError ? error.message : "the connection was lost";
    }
    if (signal.aborted) return;
    const wait = WAIT_MS[Math.min(attempts++, WAIT_MS.length - 1)]! * (0.8 + Math.random() * 0.4);
    streamState.value = { state: "lost", why, next: Date.now() + wait };
    await delay(wait, signal);
  }
}

async function stream(signal: AbortSignal, onOpen: () => void): Promise<void> {
  const silent = new AbortController();
  const either = AbortSignal.any([signal, silent.signal]);
  const response = await api().send("/v1/events", { headers: { accept: "text/event-stream" }, signal: either });
  onOpen();
  streamState.value = { state: "live" };
  reloadHandlers.forEach((renew) => renew());
  let timer = setTimeout(() => silent.abort(), SILENCE_MS);
  const monitored = response.body!.pipeThrough(
    new TransformStream<Uint8Array, Uint8Array>({
      transform(part, out) {
        clearTimeout(timer);
        timer = setTimeout(() => silent.abort(), SILENCE_MS);
        out.enqueue(part);
      },
    }),
  );
  try {
    for await (const { event, data } of events(monitored)) {
      const fields = JSON.parse(data) as Omit<ServerEvent, "kind">;
      if (event === "gap") reloadHandlers.forEach((renew) => renew());
      else listeners.forEach((listener) => listener({ ...fields, kind: event }));
    }
  } finally {
    clearTimeout(timer);
  }
}

function delay(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((wake) => {
    const done = (): void => {
      clearTimeout(timer);
      removeEventListener("online", done);
      signal.removeEventListener("abort", done);
      skipDelay = undefined;
      wake();
    };
    const timer = setTimeout(done, ms);
    addEventListener("online", done);
    signal.addEventListener("abort", done);
    skipDelay = done;
  });
}

let running: AbortController | undefined;

/** Follow the event stream of the current client. */
export function start(): void {
  client.subscribe((now) => {
    running?.abort();
    running = undefined;
    if (!now) return;
    streamState.value = { state: "connecting" };
    running = new AbortController();
    void follow(running.signal);
  });
}
