/** Words for a shell. */

import { IsoletError } from "./error.js";

/** A text as one word. */
export function quote(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/** A command that sets variables; `undefined` unsets. */
export function exports(vars: Record<string, string | undefined>): string {
  const lines = Object.entries(vars).map(([name, value]) => {
    if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name)) {
      throw new IsoletError(0, "bad_name", `${JSON.stringify(name)} cannot be a variable's name`);
    }
    return value === undefined ? `unset ${name}` : `export ${name}=${quote(value)}`;
  });
  return lines.length > 0 ? lines.join("\n") : ":";
}
