/** Delays between attempts to reconnect. */

/** How a client reconnects after a lost connection. */
export interface ReconnectOptions {
  /** Attempts in a row before the client gives up; 60 by default. */
  maxAttempts?: number;
  /** Delay before the first attempt, in milliseconds; doubles with each further one. 250 by default. */
  initialDelayMs?: number;
  /** Longest delay, in milliseconds; 10,000 by default. */
  maxDelayMs?: number;
}

/** Attempts before giving up. */
export function maxAttempts(options: true | ReconnectOptions): number {
  return (options === true ? undefined : options.maxAttempts) ?? 60;
}

/**
 * Delay in milliseconds before the next attempt, after `failed` failed ones. It is drawn at random between
 * half and all of the exponential backoff, so that clients do not all return to a restarted server at once.
 */
export function delay(options: true | ReconnectOptions, failed: number): number {
  const { initialDelayMs = 250, maxDelayMs = 10_000 } = options === true ? {} : options;
  const backoff = Math.min(initialDelayMs * 2 ** Math.min(failed, 20), maxDelayMs);
  return Math.round(backoff * (0.5 + Math.random() / 2));
}
