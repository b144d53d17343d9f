/** Writes to an xterm.js terminal, and steps that must happen exactly between two writes. */

/** The part of xterm.js that the queue uses. */
export interface Screen {
  write(data: Uint8Array, done: () => void): void;
}

/**
 * Queue of writes and steps. Bytes are passed on at once. A step waits until all earlier bytes are parsed,
 * and later bytes wait for the step. xterm.js parses asynchronously, so a resize outside the queue would take
 * effect before earlier bytes are drawn.
 */
export class WriteQueue {
  #queue: (Uint8Array | (() => void))[] = [];
  #writesInProgress = 0;
  #bytes = 0;
  #inStep = false;

  /**
   * @param screen the terminal.
   * @param onParsed called after each write with the number of unparsed bytes.
   */
  constructor(
    private readonly screen: Screen,
    private readonly onParsed: (unparsed: number) => void,
  ) {}

  /** Number of bytes written but not parsed yet. */
  get unparsed(): number {
    return this.#bytes;
  }

  /** Queue bytes. */
  write(bytes: Uint8Array): void {
    this.#bytes += bytes.length;
    this.#queue.push(bytes);
    this.#run();
  }

  /** Queue a step between the bytes before and after it. */
  then(step: () => void): void {
    this.#queue.push(step);
    this.#run();
  }

  /** Drop everything that waits. */
  clear(): void {
    for (const item of this.#queue.splice(0)) if (typeof item !== "function") this.#bytes -= item.length;
  }

  #run(): void {
    while (!this.#inStep && this.#queue.length > 0) {
      const item = this.#queue[0]!;
      if (typeof item === "function") {
        if (this.#writesInProgress > 0) return;
        this.#inStep = true;
        this.#queue.shift();
        item();
        this.#inStep = false;
      } else {
        this.#queue.shift();
        this.#writesInProgress++;
        this.screen.write(item, () => this.#parsed(item.length));
      }
    }
  }

  // Called inside xterm.js's parser loop, where steps must not run.
  #parsed(length: number): void {
    this.#writesInProgress--;
    this.#bytes -= length;
    queueMicrotask(() => {
      this.#run();
      this.onParsed(this.#bytes);
    });
  }
}
