/** Loading data for a page: the value, why it could not be read, and when it is read again. */

import { useEffect, useRef, useState } from "preact/hooks";
import { describeError } from "./api";
import { onEvent, onReloadNeeded, type ServerEvent } from "./events";

/** Data of a page. */
export interface Loaded<T> {
  /** `undefined` until it was read. */
  value: T | undefined;
  /** Why the latest attempt failed. */
  wrong: { message: string; hint: string } | undefined;
  /** Read again. Resolves once the answer is shown. */
  again: () => Promise<void>;
}

/** When to read again. */
export interface Renewal {
  /** Poll at this interval while the page is visible. */
  everyMs?: number;
  /** Read again after matching events. */
  on?: (event: ServerEvent) => boolean;
}

/** Events within this time cause one request. */
const COMBINE_MS = 150;

/**
 * Read data when the component is shown, when `deps` change, and after events may have been missed.
 *
 * A failed attempt keeps the earlier value.
 */
export function useLoaded<T>(load: (signal: AbortSignal) => Promise<T>, deps: unknown[], renewal: Renewal = {}): Loaded<T> {
  const [value, setValue] = useState<T>();
  const [wrong, setWrong] = useState<Loaded<T>["wrong"]>();
  const read = useRef<() => Promise<void>>(async () => undefined);
  const latest = useRef(renewal);
  latest.current = renewal;
  useEffect(() => {
    const ends = new AbortController();
    let turn = 0;
    setValue(undefined);
    setWrong(undefined);
    const run = async (): Promise<void> => {
      const mine = ++turn;
      try {
        const now = await load(ends.signal);
        if (ends.signal.aborted || mine !== turn) return;
        setValue(() => now);
        setWrong(undefined);
      } catch (error) {
        if (!ends.signal.aborted && mine === turn) setWrong(describeError(error));
      }
    };
    read.current = run;
    void run();
    let due: ReturnType<typeof setTimeout> | undefined;
    const leave = [
      onReloadNeeded(() => void run()),
      onEvent((event) => {
        if (!latest.current.on?.(event)) return;
        due ??= setTimeout(() => ((due = undefined), void run()), COMBINE_MS);
      }),
    ];
    const { everyMs } = latest.current;
    const timer = everyMs === undefined ? undefined : setInterval(() => document.hidden || void run(), everyMs);
    return () => {
      ends.abort();
      clearTimeout(due);
      clearInterval(timer);
      leave.forEach((off) => off());
    };
  }, deps);
  return { value, wrong, again: () => read.current() };
}
