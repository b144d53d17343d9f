/** Formatting of quantities, times and names. */

/** `812 B`, `4.1 KiB`, `1.2 GiB`. */
export function bytes(count: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = count;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

/** Format a number of MiB. */
export const mib = (count: number): string => bytes(count * 1024 * 1024).replace(/\.0 /, " ");

/** `340 ms`, `1.2 s`, `3 min 20 s`, `2 h 5 min`, `4 d 3 h`. */
export function formatDuration(ms: number): string {
  if (ms < 1000) return `${ms < 10 ? Math.max(ms, 0).toFixed(1).replace(/\.0$/, "") : Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 60) return `${s < 10 ? s.toFixed(1) : Math.round(s)} s`;
  const pair = (a: number, an: string, b: number, bn: string): string => (b ? `${a} ${an} ${b} ${bn}` : `${a} ${an}`);
  const whole = Math.floor(s);
  if (whole < 3600) return pair(Math.floor(whole / 60), "min", whole % 60, "s");
  if (whole < 86_400) return pair(Math.floor(whole / 3600), "h", Math.floor((whole % 3600) / 60), "min");
  return pair(Math.floor(whole / 86_400), "d", Math.floor((whole % 86_400) / 3600), "h");
}

/** Only the larger part of a {@link formatDuration}: `3 min`. */
export function roughDuration(ms: number): string {
  if (ms < 1000) return "now";
  const describeError = formatDuration(Math.floor(ms / 1000) * 1000).replace(/^(\d+)\.\d+ s/, "$1 s");
  return describeError.split(" ").slice(0, 2).join(" ");
}

/** Format thousandths of a core as a percentage of one core. */
export function cores(millis: number): string {
  return `${millis < 100 && millis >= 1 ? (millis / 10).toFixed(1) : Math.round(millis / 10)}%`;
}

/** Format a time; without the date if it is today. */
export function moment(ms: number): string {
  const date = new Date(ms);
  const today = date.toDateString() === new Date().toDateString();
  return today
    ? date.toLocaleTimeString(undefined, { hour12: false })
    : date.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short", hour12: false });
}

/** Invisible characters, and characters that change the direction of text. */
export const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff]/g;

/**
 * A file name with invisible characters escaped: `a\u000ab`. Prevents names that look like a different file
 * type.
 */
export const visibleName = (name: string): string => name.replace(UNSEEN, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);

/** `1 session`, `2 sessions`. */
export const plural = (count: number, one: string, more = `${one}s`): string => `${count} ${count === 1 ? one : more}`;
