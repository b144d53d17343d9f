/** Quoting for shell commands. */

import { IsoletError } from "./error.js";

/** Quote text as one word. */
export function quote(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/**
 * Build shell commands that set variables; `undefined` unsets one.
 *
 * @throws {@link IsoletError} `bad_name`.
 */
export function exports(vars: Record<string, string | undefined>): string {
  const lines = Object.entries(vars).map(([name, value]) => {
    if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name)) {
      throw new IsoletError(0, "bad_name", `${JSON.stringify(name)} is not a valid variable name`);
    }
    return value === undefined ? `unset ${name}` : `export ${name}=${quote(value)}`;
  });
  return lines.length > 0 ? lines.join("\n") : ":";
}
