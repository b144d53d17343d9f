/** Light or dark: as the system has it, unless chosen. */

import { effect, signal } from "@preact/signals";

const NAME = "isolet.theme";
/** What can be chosen. */
export type Theme = "system" | "light" | "dark";

const kept = localStorage.getItem(NAME);
/** What was chosen. */
export const theme = signal<Theme>(kept === "light" || kept === "dark" ? kept : "system");

const system = matchMedia("(prefers-color-scheme: dark)");
/** What is in force. */
export const dark = signal(false);

const settle = (): void => {
  dark.value = theme.value === "system" ? system.matches : theme.value === "dark";
  document.documentElement.dataset["theme"] = dark.value ? "dark" : "light";
};
system.addEventListener("change", settle);
effect(settle);

/** The next choice. */
export function turn(): void {
  choose(dark.peek() ? "light" : "dark");
}

/** Chooses. */
export function choose(next: Theme): void {
  if (next === "system") localStorage.removeItem(NAME);
  else localStorage.setItem(NAME, next);
  theme.value = next;
}
