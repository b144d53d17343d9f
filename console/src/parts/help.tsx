/** All keys, as they are bound now. */

import type { JSX } from "preact";
import { bound } from "../lib/keys";
import { Keys } from "./button";
import { Dialog, openDialog } from "./dialog";

/** Bound by hand, in terminals and fields. */
const FIXED = [
  { group: "Everywhere", keys: "Ctrl K", says: "Command palette (⌘ K on a Mac)" },
  { group: "Everywhere", keys: "Esc", says: "Leave a dialog or a field" },
  { group: "Terminal", keys: "Ctrl Shift L", says: "Leave the terminal: to its tab" },
  { group: "Terminal", keys: "Ctrl Shift F", says: "Search in what it shows" },
  { group: "Terminal", keys: "Ctrl Shift C", says: "Copy what is selected" },
  { group: "Terminal", keys: "Ctrl Shift V", says: "Paste" },
  { group: "Tabs", keys: "← →", says: "The next tab, when one has the focus" },
];

function Help(): JSX.Element {
  const groups = new Map<string, { keys: string; says: string }[]>();
  const seen = new Set<string>();
  for (const { group = "Everywhere", keys, says } of [...FIXED, ...bound().filter(({ also }) => !also)]) {
    if (seen.has(`${group} ${says} ${keys}`)) continue;
    seen.add(`${group} ${says} ${keys}`);
    groups.set(group, [...(groups.get(group) ?? []), { keys, says }]);
  }
  return (
    <Dialog title="Keys" wide>
      <div class="help" data-first tabIndex={-1}>
        {[...groups].map(([group, all]) => (
          <section key={group}>
            <h3>{group}</h3>
            <dl>
              {all.map(({ keys, says }) => (
                <div key={keys + says}>
                  <dt>
                    <Keys of={keys} />
                  </dt>
                  <dd>{says}</dd>
                </div>
              ))}
            </dl>
          </section>
        ))}
      </div>
    </Dialog>
  );
}

/** Shows them. */
export function openHelp(): void {
  openDialog(Help);
}
