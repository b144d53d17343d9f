/** Searches a terminal's output for patterns. */

import { IsoletError } from "./error.js";

/** Limit on unmatched output, in bytes; older output is dropped. */
const BUFFERED_BYTES_MAX = 256 * 1024;

interface Waiter {
  pattern: string | RegExp;
  found(text: string): void;
  failed(error: IsoletError): void;
}

/** Output since the last match, and callers that wait for a match. */
export class OutputMatcher {
  // Decoded on demand: most terminals are never searched.
  #parts: Uint8Array[] = [];
  #size = 0;
  #shown = "";
  readonly #decoder = new TextDecoder();
  #waiters: Waiter[] = [];
  #over: IsoletError | undefined;

  /** Add output. */
  take(bytes: Uint8Array): void {
    this.#parts.push(bytes);
    this.#size += bytes.length;
    while (this.#size > BUFFERED_BYTES_MAX && this.#parts.length > 1) this.#size -= this.#parts.shift()!.length;
    if (this.#waiters.length > 0) this.#look();
  }

  /** Fail all callers: no further output can come. */
  end(error: IsoletError): void {
    this.#over = error;
    for (const waiter of this.#waiters.splice(0)) waiter.failed(error);
  }

  /**
   * Wait for a match. The next search starts after it.
   *
   * @returns output up to and including the match.
   * @throws {@link IsoletError} `timeout`, or the error given to {@link OutputMatcher.end}.
   */
  async wait(pattern: string | RegExp, timeout: number): Promise<string> {
    return new Promise<string>((resolve, reject) => {
      const clock = setTimeout(() => {
        const shown = JSON.stringify(this.#text().slice(-200));
        waiter.failed(
          new IsoletError(0, "timeout", `${String(pattern)} did not appear within ${timeout} ms; the output ends with ${shown}`),
        );
      }, timeout);
      const waiter: Waiter = { pattern, found: settle(resolve), failed: settle(reject) };
      const abort = (): void => {
        clearTimeout(clock);
        this.#waiters = this.#waiters.filter((other) => other !== waiter);
      };
      function settle<T>(done: (value: T) => void): (value: T) => void {
        return (value) => {
          abort();
          done(value);
        };
      }
      this.#waiters.push(waiter);
      this.#look();
      if (this.#over) waiter.failed(this.#over);
    });
  }

  #text(): string {
    for (const part of this.#parts.splice(0)) this.#shown += this.#decoder.decode(part, { stream: true });
    this.#size = 0;
    this.#shown = this.#shown.slice(-BUFFERED_BYTES_MAX);
    return this.#shown;
  }

  // Callers are served in order; each match consumes the output it returns.
  #look(): void {
    while (this.#waiters.length > 0) {
      const text = this.#text();
      const [waiter] = this.#waiters;
      const end = after(text, waiter!.pattern);
      if (end === undefined) return;
      this.#shown = text.slice(end);
      waiter!.found(text.slice(0, end));
    }
  }
}

/** Offset after the first match. */
function after(text: string, pattern: string | RegExp): number | undefined {
  if (typeof pattern === "string") {
    const at = text.indexOf(pattern);
    return at < 0 ? undefined : at + pattern.length;
  }
  const match = new RegExp(pattern.source, pattern.flags.replace(/[gy]/g, "")).exec(text);
  return match ? match.index + match[0].length : undefined;
}
