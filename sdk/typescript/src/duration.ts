/** Durations as people write them. */

import { IsoletError } from "./error.js";

const UNITS: Record<string, number> = { s: 1, m: 60, h: 3600, d: 86_400 };

/** Seconds of `"90s"`, `"10m"`, `"1h"`, `"2d"` or of a number of seconds. */
export function duration(text: string | number): number {
  const match = /^(\d+)([smhd])$/.exec(String(text));
  const seconds =
    typeof text === "number" ? text : match ? Number(match[1]) * (UNITS[match[2]!] ?? NaN) : NaN;
  if (!Number.isSafeInteger(seconds) || seconds < 0) {
    throw new IsoletError(0, "bad_duration", `${JSON.stringify(text)} is no duration like "10m"`);
  }
  return seconds;
}

/** The same where a part of a second counts as a whole one, so that only 0 is 0. */
export function whole(value: string | number): number {
  return duration(typeof value === "number" ? Math.ceil(value) : value);
}
