/** Short notices about completed and failed actions. */

import { signal } from "@preact/signals";
import { describeError } from "./api";

/** A notice. */
export interface Notice {
  number: number;
  kind: "done" | "failed";
  message: string;
  hint: string;
}

const MAX = 4;
const SHOWN_MS = { done: 3500, failed: 9000 };
let count = 0;

/** Notices on display. */
export const notices = signal<Notice[]>([]);

/** Remove a notice. */
export function dismiss(number: number): void {
  notices.value = notices.value.filter((one) => one.number !== number);
}

function show(kind: Notice["kind"], message: string, hint: string): void {
  const number = ++count;
  notices.value = [...notices.value, { number, kind, message, hint }].slice(-MAX);
  setTimeout(() => dismiss(number), SHOWN_MS[kind]);
}

/** Show that an action is complete. */
export const notifySuccess = (message: string): void => show("done", message, "");

/** Show that an action failed. */
export function notifyFailure(error: unknown, what = ""): void {
  const { message, hint } = describeError(error);
  show("failed", what === "" ? message : `${what}: ${message}`, hint);
}

/**
 * Run an action and show a notice if it fails.
 *
 * @returns the result; `undefined` on failure.
 */
export async function attempt<T>(what: string, call: () => Promise<T>): Promise<T | undefined> {
  try {
    return await call();
  } catch (error) {
    notifyFailure(error, what);
    return undefined;
  }
}
