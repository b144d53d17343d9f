/** Reading a terminal's output in a loop. */

import type { IsoletError } from "./error.js";
import type { Terminal } from "./terminal.js";

/** Limit on unread output, in bytes; beyond it the terminal is paused. */
const UNREAD_BYTES_MAX = 1024 * 1024;

/**
 * Iterator over a terminal's output from now on, until its program exits.
 *
 * @param lost returns the error if the connection was lost instead.
 */
export function readTerminal(terminal: Terminal, lost: () => IsoletError | undefined): AsyncIterator<Uint8Array> {
  const unread: Uint8Array[] = [];
  let size = 0;
  let release: (() => void) | undefined;
  let woken: (() => void) | undefined;
  const offs = [
    terminal.on("data", (bytes) => {
      unread.push(bytes);
      size += bytes.length;
      if (size > UNREAD_BYTES_MAX) release ??= terminal.pause();
      woken?.();
    }),
    terminal.on("state", (state) => state === "closed" && woken?.()),
  ];
  const end = async (): Promise<IteratorResult<Uint8Array>> => {
    for (const off of offs) off();
    release?.();
    return { done: true, value: undefined };
  };
  const next = async (): Promise<IteratorResult<Uint8Array>> => {
    while (unread.length === 0) {
      if (terminal.state === "closed") {
        const why = lost();
        if (why) throw why;
        return end();
      }
      await new Promise<void>((wake) => (woken = wake));
    }
    const value = unread.shift()!;
    size -= value.length;
    if (size === 0 && release) {
      release();
      release = undefined;
    }
    return { done: false, value };
  };
  return { next, return: end };
}
