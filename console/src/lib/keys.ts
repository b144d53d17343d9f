/** Keyboard shortcuts without modifiers. They are inactive while the user types into a field. */

import { isDialogOpen } from "../parts/dialog";

/** A key, or a sequence of two (`g s`), and its action. */
export interface Binding {
  keys: string;
  label: string;
  /** Heading in the help; "Everywhere" by default. */
  group?: string;
  run: () => void;
  /** Another key for a shortcut that the help already lists. */
  alias?: boolean;
}

/** Time limit for the second key of a sequence. */
const SECOND_MS = 1200;

const layers: Binding[][] = [];

/**
 * Add shortcuts. Shortcuts added later take precedence.
 *
 * @returns a function that removes them.
 */
export function bind(bindings: Binding[]): () => void {
  layers.push(bindings);
  return () => {
    const at = layers.indexOf(bindings);
    if (at >= 0) layers.splice(at, 1);
  };
}

/** All active shortcuts. */
export const currentBindings = (): Binding[] => layers.flat();

let first = "";
let since = 0;

/** Whether the focused element accepts text. */
export function isTyping(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  if (target instanceof HTMLInputElement) return !["checkbox", "radio", "button"].includes(target.type);
  return target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement || target.isContentEditable;
}

function onKeyDown(event: KeyboardEvent): void {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  // The innermost element: the editor is in a shadow root.
  if (isTyping(event.composedPath()[0] ?? null) || isDialogOpen()) return;
  const now = performance.now();
  const pair = first !== "" && now - since < SECOND_MS ? `${first} ${event.key}` : "";
  const all = layers.flat().reverse();
  const found = all.find((one) => one.keys === pair) ?? all.find((one) => one.keys === event.key);
  first = "";
  if (found) {
    event.preventDefault();
    found.run();
  } else if (all.some((one) => one.keys.startsWith(`${event.key} `))) {
    first = event.key;
    since = now;
  }
}

/** Shortcuts of every list. */
export const listKeys: Binding[] = [
  { group: "Lists", keys: "j", label: "Down (also ↓)", run: () => step(".row .to", 1) },
  { group: "Lists", keys: "k", label: "Up (also ↑)", run: () => step(".row .to", -1) },
  { group: "Lists", keys: "ArrowDown", alias: true, label: "Down", run: () => step(".row .to", 1) },
  { group: "Lists", keys: "ArrowUp", alias: true, label: "Up", run: () => step(".row .to", -1) },
];

/** Start listening. */
export function start(): void {
  addEventListener("keydown", onKeyDown);
}

/** Move the focus among matching elements by `by`; without a focused element, to the first or last. */
export function step(selector: string, by: number): void {
  const all = [...document.querySelectorAll<HTMLElement>(selector)].filter((one) => one.offsetParent !== null);
  if (all.length === 0) return;
  const here = all.findIndex((one) => one === document.activeElement || one.contains(document.activeElement));
  const next = here < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(Math.max(here + by, 0), all.length - 1);
  all[next]!.focus();
  all[next]!.scrollIntoView({ block: "nearest" });
}
