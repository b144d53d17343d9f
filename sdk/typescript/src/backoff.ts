/** How long to wait before trying again. */

/** How a lost connection is taken up again. */
export interface Reconnect {
  /** After so many tries without a connection the terminal is closed; 60 unless told. */
  tries?: number;
  /** Before the first try, in ms; twice as long before each further one. 250 unless told. */
  firstMs?: number;
  /** The longest wait, in ms; 10,000 unless told. */
  mostMs?: number;
}

/** How often is tried. */
export function tries(options: true | Reconnect): number {
  return (options === true ? undefined : options.tries) ?? 60;
}

/** Ms before the try behind `failed` ones. Between half and all of the whole, by chance: a server
 *  that comes back is not to be asked by all of its clients at once. */
export function delay(options: true | Reconnect, failed: number): number {
  const { firstMs = 250, mostMs = 10_000 } = options === true ? {} : options;
  const whole = Math.min(firstMs * 2 ** Math.min(failed, 20), mostMs);
  return Math.round(whole * (0.5 + Math.random() / 2));
}
