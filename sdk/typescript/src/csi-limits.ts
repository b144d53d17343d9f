/** Limits on counts in escape sequences. */

import type { IDisposable, Terminal as Xterm } from "@xterm/xterm";

/** Larger counts have no visible effect on any screen. */
const COUNT_MAX = 10_000;

/**
 * Sequences that xterm.js executes in a loop of `count` iterations: insert and delete lines and columns,
 * scroll, repeat characters, tabs.
 */
const COUNTED_SEQUENCES = [
  ..."@LMPSTbIZ".split("").map((final) => ({ final })),
  { intermediates: "'", final: "}" },
  { intermediates: "'", final: "~" },
  { intermediates: " ", final: "@" },
  { intermediates: " ", final: "A" },
];

/**
 * Ignore sequences with huge counts: a program that inserts four billion lines would block the page for
 * minutes.
 */
export function limitCsiCounts(xterm: Xterm): IDisposable[] {
  return COUNTED_SEQUENCES.map((id) =>
    xterm.parser.registerCsiHandler(id, ([count]) => typeof count === "number" && count > COUNT_MAX),
  );
}
