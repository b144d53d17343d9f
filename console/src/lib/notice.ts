/** Short words about what was done or refused, shown for a while. */

import { signal } from "@preact/signals";
import { told } from "./api";

/** One of them. */
export interface Notice {
  number: number;
  kind: "done" | "failed";
  message: string;
  hint: string;
}

const MAX = 4;
const SHOWN_MS = { done: 3500, failed: 9000 };
let count = 0;

/** Those that are shown. */
export const notices = signal<Notice[]>([]);

/** Takes one away. */
export function dismiss(number: number): void {
  notices.value = notices.value.filter((one) => one.number !== number);
}

function show(kind: Notice["kind"], message: string, hint: string): void {
  const number = ++count;
  notices.value = [...notices.value, { number, kind, message, hint }].slice(-MAX);
  setTimeout(() => dismiss(number), SHOWN_MS[kind]);
}

/** It was done. */
export const done = (message: string): void => show("done", message, "");

/** It was refused, or went wrong. */
export function failed(error: unknown, what = ""): void {
  const { message, hint } = told(error);
  show("failed", what === "" ? message : `${what}: ${message}`, hint);
}

/** Does something; says so when it fails, and gives `undefined` then. */
export async function attempt<T>(what: string, call: () => Promise<T>): Promise<T | undefined> {
  try {
    return await call();
  } catch (error) {
    failed(error, what);
    return undefined;
  }
}
