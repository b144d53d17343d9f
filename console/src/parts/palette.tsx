/** Command palette: finds sandboxes and actions by a few letters. */

import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import { readOnly } from "../lib/access";
import * as actions from "../lib/actions";
import { signOut } from "../lib/key";
import { go, PAGES, route } from "../lib/route";
import { sorted } from "../lib/sandboxes";
import { choose, dark } from "../lib/theme";
import { openCreate } from "../pages/sandboxes/create";
import { Keys } from "./button";
import { closeDialog, Dialog, openDialog } from "./dialog";
import { openHelp } from "./help";
import { Icon, type IconName } from "./icon";

interface Entry {
  icon: IconName;
  name: string;
  note?: string;
  keys?: string;
  /** It changes something. */
  changes?: boolean;
  run: () => void;
}

const SHOWN_MAX = 60;

function entries(): Entry[] {
  const here = route.peek();
  const all: Entry[] = [];
  if (here.page === "sandbox") {
    const { id } = here;
    all.push(
      { icon: "terminal", name: "Open a terminal", note: id, keys: "t", run: () => go("sandboxes", id, "terminal") },
      { icon: "right", name: "Commands", note: id, keys: "g c", run: () => go("sandboxes", id, "commands") },
      { icon: "right", name: "Processes", note: id, keys: "g r", run: () => go("sandboxes", id, "processes") },
      { icon: "link", name: "Ports", note: id, keys: "g o", run: () => go("sandboxes", id, "ports") },
      { icon: "right", name: "Network", note: id, keys: "g w", run: () => go("sandboxes", id, "network") },
      { icon: "folder", name: "Files", note: id, keys: "g f", run: () => go("sandboxes", id, "files") },
      { icon: "box", name: "Snapshots", note: id, keys: "g n", run: () => go("sandboxes", id, "snapshots") },
      { icon: "box", name: "Details", note: id, keys: "g d", run: () => go("sandboxes", id, "details") },
      { icon: "sleep", name: "Put to sleep", note: id, changes: true, run: () => void actions.sleep(id) },
      { icon: "trash", name: "Destroy", note: id, changes: true, run: () => actions.destroy(id) },
    );
  }
  all.push(
    { icon: "plus", name: "New sandbox", keys: "n", changes: true, run: openCreate },
    { icon: "box", name: "All sandboxes", keys: "g s", run: () => go("sandboxes") },
    ...PAGES.filter(({ page }) => page !== "sandboxes").map(({ page, name, key }): Entry => ({ icon: "right", name, keys: `g ${key}`, run: () => go(page) })),
    { icon: dark.peek() ? "sun" : "moon", name: dark.peek() ? "Light theme" : "Dark theme", note: "appearance", run: () => choose(dark.peek() ? "light" : "dark") },
    { icon: "again", name: "System theme", note: "appearance", run: () => choose("system") },
    { icon: "keys", name: "Keyboard shortcuts", keys: "?", run: openHelp },
    { icon: "exit", name: "Sign out", run: signOut },
  );
  for (const { id, state } of sorted.peek()) {
    all.push({ icon: "box", name: id, note: state, run: () => go("sandboxes", id) });
    all.push({ icon: "terminal", name: id, note: "terminal", run: () => go("sandboxes", id, "terminal") });
  }
  return all.filter(({ changes }) => !changes || !readOnly.peek());
}

/** Rank of a match; lower is better, `undefined` means no match. The letters must occur in order. */
function fit(entry: Entry, wanted: string): number | undefined {
  const text = `${entry.name} ${entry.note ?? ""}`.toLowerCase();
  const whole = text.indexOf(wanted);
  if (whole >= 0) return whole;
  let from = 0;
  for (const letter of wanted) {
    from = text.indexOf(letter, from) + 1;
    if (from === 0) return undefined;
  }
  return 1000 + from;
}

function Palette(): JSX.Element {
  const all = useMemo(entries, []);
  const [wanted, setWanted] = useState("");
  const [chosen, setChosen] = useState(0);
  const found = useMemo(() => {
    const text = wanted.trim().toLowerCase();
    if (text === "") return all.slice(0, SHOWN_MAX);
    return all
      .map((entry) => ({ entry, fit: fit(entry, text) }))
      .filter((one): one is { entry: Entry; fit: number } => one.fit !== undefined)
      .sort((a, b) => a.fit - b.fit)
      .slice(0, SHOWN_MAX)
      .map(({ entry }) => entry);
  }, [wanted]);
  const run = (entry: Entry | undefined): void => {
    if (!entry) return;
    closeDialog();
    entry.run();
  };
  const keyed = (event: KeyboardEvent): void => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by !== undefined) {
      event.preventDefault();
      const next = Math.min(Math.max(chosen + by, 0), found.length - 1);
      setChosen(next);
      document.getElementById(`palette-${next}`)?.scrollIntoView({ block: "nearest" });
    } else if (event.key === "Enter") {
      event.preventDefault();
      run(found[chosen]);
    }
  };
  return (
    <Dialog title="Command palette" bare>
      <div class="palette">
        <div class="palette-input">
          <Icon icon="search" />
          <input
            data-first
            type="text"
            role="combobox"
            aria-expanded="true"
            aria-controls="palette-list"
            aria-activedescendant={found.length ? `palette-${chosen}` : undefined}
            aria-label="Command"
            placeholder="Search sandboxes and commands …"
            autoComplete="off"
            spellcheck={false}
            value={wanted}
            onInput={(event) => {
              setWanted(event.currentTarget.value);
              setChosen(0);
            }}
            onKeyDown={keyed}
          />
        </div>
        <ul id="palette-list" role="listbox" aria-label="Results">
          {found.map((entry, i) => (
            <li
              key={i}
              id={`palette-${i}`}
              role="option"
              aria-selected={i === chosen}
              onMouseMove={() => setChosen(i)}
              onClick={() => run(entry)}
            >
              <Icon icon={entry.icon} />
              <span class="palette-name">{entry.name}</span>
              {entry.note && <span class="dim">{entry.note}</span>}
              {entry.keys && <Keys of={entry.keys} />}
            </li>
          ))}
          {found.length === 0 && <li class="palette-none">No results</li>}
        </ul>
      </div>
    </Dialog>
  );
}

/** Open the palette. */
export function openPalette(): void {
  openDialog(Palette);
}
