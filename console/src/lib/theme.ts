/** Light and dark theme; follows the system unless the user chooses one. */

import { effect, signal } from "@preact/signals";

const NAME = "isolet.theme";
/** Available themes. */
export type Theme = "system" | "light" | "dark";

const stored = localStorage.getItem(NAME);
/** The user's choice. */
export const theme = signal<Theme>(stored === "light" || stored === "dark" ? stored : "system");

const system = matchMedia("(prefers-color-scheme: dark)");
/** Whether the dark theme is active. */
export const dark = signal(false);

const applyTheme = (): void => {
  dark.value = theme.value === "system" ? system.matches : theme.value === "dark";
  document.documentElement.dataset["theme"] = dark.value ? "dark" : "light";
};
system.addEventListener("change", applyTheme);
effect(applyTheme);

/** Switch between light and dark. */
export function toggle(): void {
  choose(dark.peek() ? "light" : "dark");
}

/** Choose a theme. */
export function choose(next: Theme): void {
  if (next === "system") localStorage.removeItem(NAME);
  else localStorage.setItem(NAME, next);
  theme.value = next;
}
