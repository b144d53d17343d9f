/** Dialog with all keyboard shortcuts. */

import type { JSX } from "preact";
import { currentBindings } from "../lib/keys";
import { Keys } from "./button";
import { Dialog, openDialog } from "./dialog";

/** Shortcuts that terminals and fields handle themselves. */
const FIXED = [
  { group: "Everywhere", keys: "Ctrl K", label: "Command palette (⌘ K on a Mac)" },
  { group: "Everywhere", keys: "Esc", label: "Close a dialog or leave a field" },
  { group: "Terminal", keys: "Ctrl Shift L", label: "Move the focus from the terminal to its tab" },
  { group: "Terminal", keys: "Ctrl Shift F", label: "Search the terminal" },
  { group: "Terminal", keys: "Ctrl Shift C", label: "Copy the selection" },
  { group: "Terminal", keys: "Ctrl Shift V", label: "Paste" },
  { group: "Files", keys: "Ctrl S", label: "Save, in the editor" },
  { group: "Tabs", keys: "← →", label: "Previous or next tab, when a tab has the focus" },
];

function Help(): JSX.Element {
  const groups = new Map<string, { keys: string; label: string }[]>();
  const seen = new Set<string>();
  for (const { group = "Everywhere", keys, label } of [...FIXED, ...currentBindings().filter(({ alias }) => !alias)]) {
    if (seen.has(`${group} ${label} ${keys}`)) continue;
    seen.add(`${group} ${label} ${keys}`);
    groups.set(group, [...(groups.get(group) ?? []), { keys, label }]);
  }
  return (
    <Dialog title="Keyboard shortcuts" wide>
      <div class="help" data-first tabIndex={-1}>
        {[...groups].map(([group, all]) => (
          <section key={group}>
            <h3>{group}</h3>
            <dl>
              {all.map(({ keys, label }) => (
                <div key={keys + label}>
                  <dt>
                    <Keys of={keys} />
                  </dt>
                  <dd>{label}</dd>
                </div>
              ))}
            </dl>
          </section>
        ))}
        <p>
          <a href="/docs" target="_blank" rel="noopener noreferrer">
            API reference
          </a>
        </p>
      </div>
    </Dialog>
  );
}

/** Open the dialog. */
export function openHelp(): void {
  openDialog(Help);
}
