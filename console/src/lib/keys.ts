/** Keys that act without a modifier, wherever nobody types. */

import { dialogStands } from "../parts/dialog";

/** A key, or two in a row (`g s`), and what it does. */
export interface Binding {
  keys: string;
  says: string;
  /** Where it holds; everywhere unless told. */
  group?: string;
  run: () => void;
  /** Another key for what is told already. */
  also?: boolean;
}

/** How long the second key of two may take. */
const SECOND_MS = 1200;

const layers: Binding[][] = [];

/** Binds keys until the function that it gives is called; later ones come first. */
export function bind(bindings: Binding[]): () => void {
  layers.push(bindings);
  return () => {
    const at = layers.indexOf(bindings);
    if (at >= 0) layers.splice(at, 1);
  };
}

/** All that are bound now. */
export const bound = (): Binding[] => layers.flat();

let first = "";
let since = 0;

/** Whether what has the focus takes letters for itself. */
export function typing(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  if (target instanceof HTMLInputElement) return !["checkbox", "radio", "button"].includes(target.type);
  return target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement || target.isContentEditable;
}

function pressed(event: KeyboardEvent): void {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  if (typing(event.target) || dialogStands()) return;
  const now = performance.now();
  const pair = first !== "" && now - since < SECOND_MS ? `${first} ${event.key}` : "";
  const all = layers.flat().reverse();
  const found = all.find((one) => one.keys === pair) ?? all.find((one) => one.keys === event.key);
  first = "";
  if (found) {
    event.preventDefault();
    found.run();
  } else if (all.some((one) => one.keys.startsWith(`${event.key} `))) {
    [first, since] = [event.key, now];
  }
}

/** Listens from now on. */
export function start(): void {
  addEventListener("keydown", pressed);
}

/** Moves the focus among the elements that match, by `step`; from none to the first. */
export function step(selector: string, by: number): void {
  const all = [...document.querySelectorAll<HTMLElement>(selector)].filter((one) => one.offsetParent !== null);
  if (all.length === 0) return;
  const here = all.findIndex((one) => one === document.activeElement || one.contains(document.activeElement));
  const next = here < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(Math.max(here + by, 0), all.length - 1);
  all[next]!.focus();
  all[next]!.scrollIntoView({ block: "nearest" });
}
