/**
 * Detects dead connections. A web page does not see the server's pings, and a half-open connection accepts
 * data as if it were delivered; so the client sends pings.
 */

/** Silence before a ping, in milliseconds. */
const IDLE_MS = 15_000;
/** Silence after sending data before a ping, in milliseconds. */
const SENT_MS = 3_000;
/** Time to wait for the answer, in milliseconds. */
const ANSWER_MS = 8_000;

/** Heartbeat of one connection. */
export class Heartbeat {
  #receivedAt = 0;
  #idleTimer: ReturnType<typeof setTimeout> | undefined;
  #answerTimer: ReturnType<typeof setTimeout> | undefined;

  /**
   * @param sendPing sends a ping.
   * @param onDead called if no answer arrives.
   */
  constructor(
    private readonly sendPing: () => void,
    private readonly onDead: () => void,
  ) {}

  /** Start the timers for a new connection. */
  start(): void {
    this.stop();
    this.received();
  }

  /** Stop all timers. */
  stop(): void {
    clearTimeout(this.#idleTimer);
    clearTimeout(this.#answerTimer);
    this.#idleTimer = this.#answerTimer = undefined;
  }

  /** Report a message from the server. */
  received(): void {
    this.#receivedAt = Date.now();
    clearTimeout(this.#answerTimer);
    this.#answerTimer = undefined;
    // Not restarted at each message: there may be thousands per second.
    this.#idleTimer ??= setTimeout(() => this.#tick(), IDLE_MS);
  }

  /** Report that data was sent. */
  sent(): void {
    if (Date.now() - this.#receivedAt > SENT_MS) this.check();
  }

  /** Send a ping now. */
  check(): void {
    if (this.#answerTimer !== undefined) return;
    this.#answerTimer = setTimeout(() => {
      this.stop();
      this.onDead();
    }, ANSWER_MS);
    this.sendPing();
  }

  #tick(): void {
    const idle = Date.now() - this.#receivedAt;
    this.#idleTimer = setTimeout(() => this.#tick(), idle >= IDLE_MS ? IDLE_MS : IDLE_MS - idle);
    if (idle >= IDLE_MS) this.check();
  }
}
