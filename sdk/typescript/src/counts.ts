/** Counts in sequences, as far as a page bears them. */

import type { IDisposable, Terminal as Xterm } from "@xterm/xterm";

/** Beyond this a count says nothing that a screen can show. */
const COUNT_MAX = 10_000;

/** What xterm.js does one by one, as often as it is told: lines and columns inserted and deleted,
 *  lines scrolled, characters repeated, tabs. */
const COUNTED = [
  ..."@LMPSTbIZ".split("").map((final) => ({ final })),
  { intermediates: "'", final: "}" },
  { intermediates: "'", final: "~" },
  { intermediates: " ", final: "@" },
  { intermediates: " ", final: "A" },
];

/** A program that asks for four thousand million lines would hold the page for minutes: sequences
 *  with such a count do nothing. */
export function bounded(xterm: Xterm): IDisposable[] {
  return COUNTED.map((id) =>
    xterm.parser.registerCsiHandler(id, ([count]) => typeof count === "number" && count > COUNT_MAX),
  );
}
