/** Waiting for what a terminal shows. */

import { IsoletError } from "./error.js";

/** Bytes that are kept for who looks later. */
const KEPT_BYTES_MAX = 256 * 1024;

interface Waiter {
  pattern: string | RegExp;
  found(text: string): void;
  failed(error: IsoletError): void;
}

/** What was shown since the last match. */
export class Expect {
  // Decoded when somebody looks: most terminals are never waited for.
  #parts: Uint8Array[] = [];
  #size = 0;
  #shown = "";
  readonly #decoder = new TextDecoder();
  #waiters: Waiter[] = [];
  #over: IsoletError | undefined;

  /** More is shown. */
  take(bytes: Uint8Array): void {
    this.#parts.push(bytes);
    this.#size += bytes.length;
    while (this.#size > KEPT_BYTES_MAX && this.#parts.length > 1) this.#size -= this.#parts.shift()!.length;
    if (this.#waiters.length > 0) this.#look();
  }

  /** Nothing more is shown. */
  end(error: IsoletError): void {
    this.#over = error;
    for (const waiter of this.#waiters.splice(0)) waiter.failed(error);
  }

  /** Everything up to and with the first match of `pattern`; the next wait looks behind it. */
  async wait(pattern: string | RegExp, timeout: number): Promise<string> {
    return new Promise<string>((resolve, reject) => {
      const clock = setTimeout(() => {
        const shown = JSON.stringify(this.#text().slice(-200));
        waiter.failed(
          new IsoletError(0, "timeout", `${String(pattern)} was not shown within ${timeout} ms, but ${shown}`),
        );
      }, timeout);
      const waiter: Waiter = { pattern, found: settle(resolve), failed: settle(reject) };
      const drop = (): void => {
        clearTimeout(clock);
        this.#waiters = this.#waiters.filter((other) => other !== waiter);
      };
      function settle<T>(done: (value: T) => void): (value: T) => void {
        return (value) => {
          drop();
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
    this.#shown = this.#shown.slice(-KEPT_BYTES_MAX);
    return this.#shown;
  }

  // Who came first is served first; each match takes away what it matched.
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

/** Where the first match ends. */
function after(text: string, pattern: string | RegExp): number | undefined {
  if (typeof pattern === "string") {
    const at = text.indexOf(pattern);
    return at < 0 ? undefined : at + pattern.length;
  }
  const match = new RegExp(pattern.source, pattern.flags.replace(/[gy]/g, "")).exec(text);
  return match ? match.index + match[0].length : undefined;
}
