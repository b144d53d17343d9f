/** Whether a connection still lives. A page sees no pings of the server, and a half-open
 *  connection takes what is sent as if somebody heard it: so it asks. */

/** Nothing was heard for so long: ask. In ms. */
const QUIET_MS = 15_000;
/** Something was sent, and nothing was heard for so long: ask. In ms. */
const SPOKE_MS = 3_000;
/** So long for an answer, in ms. */
const ANSWER_MS = 8_000;

/** One connection's. */
export class Pulse {
  #heardAt = 0;
  #quiet: ReturnType<typeof setTimeout> | undefined;
  #answer: ReturnType<typeof setTimeout> | undefined;

  /** @param ask sends what is answered. @param dead it was not. */
  constructor(
    private readonly ask: () => void,
    private readonly dead: () => void,
  ) {}

  start(): void {
    this.stop();
    this.heard();
  }

  stop(): void {
    clearTimeout(this.#quiet);
    clearTimeout(this.#answer);
    this.#quiet = this.#answer = undefined;
  }

  /** The other side lives. */
  heard(): void {
    this.#heardAt = Date.now();
    clearTimeout(this.#answer);
    this.#answer = undefined;
    // Not set anew at each message: there are thousands a second.
    this.#quiet ??= setTimeout(() => this.#look(), QUIET_MS);
  }

  /** Something was sent. */
  spoke(): void {
    if (Date.now() - this.#heardAt > SPOKE_MS) this.doubt();
  }

  /** Asks at once. */
  doubt(): void {
    if (this.#answer !== undefined) return;
    this.#answer = setTimeout(() => {
      this.stop();
      this.dead();
    }, ANSWER_MS);
    this.ask();
  }

  #look(): void {
    const quiet = Date.now() - this.#heardAt;
    this.#quiet = setTimeout(() => this.#look(), quiet >= QUIET_MS ? QUIET_MS : QUIET_MS - quiet);
    if (quiet >= QUIET_MS) this.doubt();
  }
}
