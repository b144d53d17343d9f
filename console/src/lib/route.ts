/**
 * Current page, stored in the URL fragment: `#/sandboxes/ID/TAB/NAME`, or `#/PAGE/…` for the other pages. An
 * open dialog has an entry of its own in the history, so that Back closes it and leaves the page as it is.
 */

import { computed, signal } from "@preact/signals";

const fragment = signal(location.hash);

function read(hash: string): string[] {
  if (!hash.startsWith("#/")) return [];
  return hash
    .slice(2)
    .split("/")
    .filter((part) => part !== "")
    .map((part) => {
      try {
        return decodeURIComponent(part);
      } catch {
        return part;
      }
    });
}

/** Tabs of a sandbox's page. */
export type Tab = "sessions" | "terminal" | "commands" | "processes" | "files" | "ports" | "network" | "snapshots" | "details";
const TABS: Tab[] = ["sessions", "terminal", "commands", "processes", "files", "ports", "network", "snapshots", "details"];

/** Pages beside those of single sandboxes. */
export type Page = "sandboxes" | "images" | "snapshots" | "events" | "audit" | "keys";
/** The pages, with the key that follows `g`. */
export const PAGES: { page: Page; name: string; key: string }[] = [
  { page: "sandboxes", name: "Sandboxes", key: "s" },
  { page: "images", name: "Images", key: "i" },
  { page: "snapshots", name: "Snapshots", key: "p" },
  { page: "events", name: "Events", key: "v" },
  { page: "audit", name: "Audit", key: "a" },
  { page: "keys", name: "Keys", key: "k" },
];

/** A page. `rest` holds the parts of the fragment behind the page's name. */
export type Route = { page: Page; rest: string[] } | { page: "sandbox"; id: string; tab: Tab; name: string };

/** The current page. */
export const route = computed<Route>(() => {
  const [first, id, tab, ...name] = read(fragment.value);
  const page = PAGES.find((one) => one.page === first)?.page ?? "sandboxes";
  if (page !== "sandboxes") return { page, rest: read(fragment.value).slice(1) };
  if (id === undefined || first !== "sandboxes") return { page, rest: [] };
  const known = TABS.find((one) => one === tab) ?? "sessions";
  return { page: "sandbox", id, tab: known, name: name.join("/") };
});

/** URL fragment of a page. */
export function link(...to: string[]): string {
  return `#/${to.map(encodeURIComponent).join("/")}`;
}

/** Mark of the history entries of dialogs. */
const DIALOG = "dialog";
const atDialog = (): boolean => history.state === DIALOG;
/** Whether `history.back()` was called and has not taken effect yet. */
let leaving = false;
/** Page to go to once it has. */
let next: string | undefined;
let onBack: (() => void) | undefined;

/** Navigate to a page. Takes effect at once, so that the next key press already reaches the new page. */
export function go(...to: string[]): void {
  const target = link(...to);
  fragment.value = target;
  if (leaving) next = target;
  else if (atDialog()) history.replaceState(null, "", target);
  else if (target !== location.hash) history.pushState(null, "", target);
}

/** Navigate to a page and replace the current history entry. */
export function move(...to: string[]): void {
  const target = link(...to);
  fragment.value = target;
  if (leaving) next = target;
  else history.replaceState(null, "", target);
}

/** Add the history entry of a dialog; `close` is called when the user leaves it by Back. */
export function enterDialog(close: () => void): void {
  onBack = close;
  if (!leaving && !atDialog()) history.pushState(DIALOG, "", location.hash || location.pathname);
}

/** Remove the history entry of a dialog that was closed otherwise, unless another dialog or page took it over. */
export function leaveDialog(): void {
  onBack = undefined;
  setTimeout(() => {
    if (onBack || leaving || !atDialog()) return;
    leaving = true;
    history.back();
  }, 0);
}

function moved(): void {
  if (leaving) {
    leaving = false;
    if (next !== undefined) history.pushState(null, "", next);
    next = undefined;
    if (onBack) history.pushState(DIALOG, "", location.hash || location.pathname);
    return;
  }
  if (onBack && !atDialog()) {
    const close = onBack;
    onBack = undefined;
    close();
  }
  fragment.value = location.hash;
}

addEventListener("popstate", moved);
addEventListener("hashchange", () => !leaving && (fragment.value = location.hash));
