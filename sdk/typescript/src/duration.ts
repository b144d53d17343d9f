/** Durations as numbers and text. */

import { IsoletError } from "./error.js";

const UNITS: Record<string, number> = { s: 1, m: 60, h: 3600, d: 86_400 };

/**
 * Convert a number of seconds, or text such as `"90s"`, `"10m"`, `"1h"` or `"2d"`, to seconds.
 *
 * @throws {@link IsoletError} `bad_duration`.
 */
export function duration(text: string | number): number {
  const match = /^(\d+)([smhd])$/.exec(String(text));
  const seconds =
    typeof text === "number" ? text : match ? Number(match[1]) * (UNITS[match[2]!] ?? NaN) : NaN;
  if (!Number.isSafeInteger(seconds) || seconds < 0) {
    throw new IsoletError(0, "bad_duration", `${JSON.stringify(text)} is not a duration such as "10m"`);
  }
  return seconds;
}

/** Like {@link duration}, but rounds fractions up, so that only 0 becomes 0. */
export function wholeSeconds(value: string | number): number {
  return duration(typeof value === "number" ? Math.ceil(value) : value);
}
