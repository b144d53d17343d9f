/** Where one is, in the fragment of the address: `#/sandboxes/ID/TAB/NAME`. */

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

/** What a sandbox's page shows. */
export type Tab = "sessions" | "terminal" | "commands" | "files" | "details";
const TABS: Tab[] = ["sessions", "terminal", "commands", "files", "details"];

/** Where one is. */
export type Route = { page: "sandboxes" } | { page: "sandbox"; id: string; tab: Tab; name: string };

/** Where one is now. */
export const route = computed<Route>(() => {
  const [page, id, tab, ...name] = read(fragment.value);
  if (page !== "sandboxes" || id === undefined) return { page: "sandboxes" };
  const known = TABS.find((one) => one === tab) ?? "sessions";
  return { page: "sandbox", id, tab: known, name: name.join("/") };
});

/** The address of a place. */
export function link(...to: string[]): string {
  return `#/${to.map(encodeURIComponent).join("/")}`;
}

/** Goes to a place. The page is there at once: the next key that is pressed is already for it. */
export function go(...to: string[]): void {
  location.hash = link(...to);
  fragment.value = location.hash;
}

/** Goes to a place that takes the present one's place in the history. */
export function move(...to: string[]): void {
  history.replaceState(null, "", link(...to));
  fragment.value = location.hash;
}
