/** Where one is, in the fragment of the address: `#/sandboxes/ID/TAB/NAME`. */

import { computed, signal } from "@preact/signals";

const parts = signal(read());

function read(): string[] {
  if (!location.hash.startsWith("#/")) return [];
  return location.hash
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

addEventListener("hashchange", () => (parts.value = read()));

/** What a sandbox's page shows. */
export type Tab = "sessions" | "terminal" | "commands" | "files" | "details";
const TABS: Tab[] = ["sessions", "terminal", "commands", "files", "details"];

/** Where one is. */
export type Route = { page: "sandboxes" } | { page: "sandbox"; id: string; tab: Tab; name: string };

/** Where one is now. */
export const route = computed<Route>(() => {
  const [page, id, tab, ...name] = parts.value;
  if (page !== "sandboxes" || id === undefined) return { page: "sandboxes" };
  const known = TABS.find((one) => one === tab) ?? "sessions";
  return { page: "sandbox", id, tab: known, name: name.join("/") };
});

/** The address of a place. */
export function link(...to: string[]): string {
  return `#/${to.map(encodeURIComponent).join("/")}`;
}

/** Goes to a place. */
export function go(...to: string[]): void {
  location.hash = link(...to);
}

/** Goes to a place that takes the present one's place in the history. */
export function move(...to: string[]): void {
  history.replaceState(null, "", link(...to));
  parts.value = read();
}
