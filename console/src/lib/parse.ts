/** Reads values that the user typed into forms. */

import { IsoletError } from "@isolet/sdk";

const UNITS: Record<string, number> = { s: 1, m: 60, min: 60, h: 3600, d: 86_400 };

const bad = (name: string, text: string, what: string, hint: string): IsoletError =>
  new IsoletError(0, "bad_field", `${name}: ${JSON.stringify(text)} is not ${what}`, hint);

/**
 * Convert `90`, `10m` or `2h` to seconds.
 *
 * @throws {@link IsoletError} with a message for the form.
 */
export function seconds(name: string, text: string): number | undefined {
  if (text.trim() === "") return undefined;
  const match = /^(\d+)\s*(s|m|min|h|d)?$/.exec(text.trim());
  if (!match) throw bad(name, text, "a duration", "use a value such as 90s, 10m, 2h or 1d");
  return Number(match[1]) * UNITS[match[2] ?? "s"]!;
}

/** Convert digits to a number. */
export function count(name: string, text: string): number | undefined {
  if (text.trim() === "") return undefined;
  if (!/^\d+$/.test(text.trim())) throw bad(name, text, "a whole number", "use digits only");
  return Number(text.trim());
}

/** Words and lines, for lists such as network rules. */
export const words = (text: string): string[] => text.split(/[\s,]+/).filter((one) => one !== "");

/** Convert lines of `NAME=VALUE`. */
export function variables(text: string): Record<string, string> | undefined {
  const lines = text.split("\n").filter((line) => line.trim() !== "");
  if (lines.length === 0) return undefined;
  return Object.fromEntries(
    lines.map((line) => {
      const at = line.indexOf("=");
      if (at < 1) throw bad("environment", line, "a variable", "write one variable per line, such as NAME=value");
      return [line.slice(0, at).trim(), line.slice(at + 1)];
    }),
  );
}

/** Without the fields that are `undefined`. */
export function defined(fields: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
}
