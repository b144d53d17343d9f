/** Output read in a loop. */

import type { IsoletError } from "./error.js";
import type { Terminal } from "./terminal.js";

/** What is kept for a reader that is slow, in bytes; then it holds the terminal. */
const UNREAD_BYTES_MAX = 1024 * 1024;

/** What a terminal shows from now on, up to its end. `lost`: why that was no end of its program. */
export function reading(terminal: Terminal, lost: () => IsoletError | undefined): AsyncIterator<Uint8Array> {
  const unread: Uint8Array[] = [];
  let size = 0;
  let release: (() => void) | undefined;
  let woken: (() => void) | undefined;
  const offs = [
    terminal.on("data", (bytes) => {
      unread.push(bytes);
      size += bytes.length;
      if (size > UNREAD_BYTES_MAX) release ??= terminal.hold();
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
