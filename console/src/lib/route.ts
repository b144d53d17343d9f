/** Current page, stored in the URL fragment: `#/sandboxes/ID/TAB/NAME`. */

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

addEventListener("hashchange", () => (fragment.value = location.hash));

/** Tabs of a sandbox's page. */
export type Tab = "sessions" | "terminal" | "commands" | "files" | "snapshots" | "details";
const TABS: Tab[] = ["sessions", "terminal", "commands", "files", "snapshots", "details"];

/** A page. */
export type Route = { page: "sandboxes" } | { page: "sandbox"; id: string; tab: Tab; name: string };

/** The current page. */
export const route = computed<Route>(() => {
  const [page, id, tab, ...name] = read(fragment.value);
  if (page !== "sandboxes" || id === undefined) return { page: "sandboxes" };
  const known = TABS.find((one) => one === tab) ?? "sessions";
  return { page: "sandbox", id, tab: known, name: name.join("/") };
});

/** URL fragment of a page. */
export function link(...to: string[]): string {
  return `#/${to.map(encodeURIComponent).join("/")}`;
}

/** Navigate to a page. Takes effect at once, so that the next key press already reaches the new page. */
export function go(...to: string[]): void {
  location.hash = link(...to);
  fragment.value = location.hash;
}

/** Navigate to a page and replace the current history entry. */
export function move(...to: string[]): void {
  history.replaceState(null, "", link(...to));
  fragment.value = location.hash;
}
