/** The three states of loaded data: loading, failed, and there. */

import type { JSX } from "preact";
import type { Loaded } from "../lib/load";
import { Loading, LoadError } from "./state";

/** Show loaded data, or why it is not there. */
export function Show<T>({ of, rows = 5, children }: { of: Loaded<T>; rows?: number; children: (value: T) => JSX.Element }): JSX.Element {
  if (of.value !== undefined) return children(of.value);
  return of.wrong ? <LoadError {...of.wrong} again={() => void of.again()} /> : <Loading rows={rows} />;
}
