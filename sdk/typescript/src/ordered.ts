/** Writes to an xterm.js terminal, and what must happen exactly between two of them. */

/** What is needed of xterm.js. */
export interface Screen {
  write(data: Uint8Array, done: () => void): void;
}

/** In order: bytes are handed over at once; a step waits until all bytes before it were parsed,
 *  and bytes behind it wait for it. xterm.js parses later than it is written to, so a size that is
 *  set directly would be set before the bytes that were drawn for the old one. */
export class Ordered {
  #waiting: (Uint8Array | (() => void))[] = [];
  #parsing = 0;
  #bytes = 0;
  #stepping = false;

  /** @param took is called after each write with the bytes that were not parsed yet. */
  constructor(
    private readonly screen: Screen,
    private readonly took: (unparsed: number) => void,
  ) {}

  /** Bytes that were written here and not parsed yet. */
  get unparsed(): number {
    return this.#bytes;
  }

  write(bytes: Uint8Array): void {
    this.#bytes += bytes.length;
    this.#waiting.push(bytes);
    this.#go();
  }

  /** Calls `step` between the bytes before and behind it. */
  then(step: () => void): void {
    this.#waiting.push(step);
    this.#go();
  }

  /** Forgets what waits. */
  clear(): void {
    for (const item of this.#waiting.splice(0)) if (typeof item !== "function") this.#bytes -= item.length;
  }

  #go(): void {
    while (!this.#stepping && this.#waiting.length > 0) {
      const item = this.#waiting[0]!;
      if (typeof item === "function") {
        if (this.#parsing > 0) return;
        this.#stepping = true;
        this.#waiting.shift();
        item();
        this.#stepping = false;
      } else {
        this.#waiting.shift();
        this.#parsing++;
        this.screen.write(item, () => this.#parsed(item.length));
      }
    }
  }

  // Within the loop of xterm.js that parses: a step would be inside of it.
  #parsed(length: number): void {
    this.#parsing--;
    this.#bytes -= length;
    queueMicrotask(() => {
      this.#go();
      this.took(this.#bytes);
    });
  }
}
