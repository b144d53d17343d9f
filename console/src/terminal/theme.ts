/**
 * The sixteen terminal colours for the light and dark theme. Full-screen programs put any of them on any other, so
 * white and black are really light and dark in both themes; xterm.js and {@link ../lib/contrast} raise the contrast
 * of text where a pair is not readable.
 */

import type { ISearchDecorationOptions } from "@xterm/addon-search";
import type { ITheme } from "@xterm/xterm";

const DARK: ITheme = {
  background: "#0c0e11",
  foreground: "#d7dae0",
  cursor: "#d7dae0",
  cursorAccent: "#0c0e11",
  selectionBackground: "#2f4a7a",
  black: "#23272e",
  red: "#f2777a",
  green: "#7cc58a",
  yellow: "#e0b561",
  blue: "#7aa5ff",
  magenta: "#cf9bf0",
  cyan: "#66c6cf",
  white: "#c9cdd4",
  brightBlack: "#79808c",
  brightRed: "#ff9a98",
  brightGreen: "#9fdcaa",
  brightYellow: "#f2cf86",
  brightBlue: "#a3c1ff",
  brightMagenta: "#e2bdf8",
  brightCyan: "#94dde4",
  brightWhite: "#ffffff",
};

const LIGHT: ITheme = {
  background: "#fdfdfc",
  foreground: "#23262b",
  cursor: "#23262b",
  cursorAccent: "#fdfdfc",
  selectionBackground: "#c5d7fb",
  black: "#23262b",
  red: "#b3261e",
  green: "#1b6e3a",
  yellow: "#855a00",
  blue: "#1d4fbf",
  magenta: "#8a2f9e",
  cyan: "#0b6b78",
  white: "#d5d8dd",
  brightBlack: "#5b616b",
  brightRed: "#c93b31",
  brightGreen: "#22854a",
  brightYellow: "#9a6b00",
  brightBlue: "#2f63d6",
  brightMagenta: "#a042b5",
  brightCyan: "#12808f",
  brightWhite: "#ffffff",
};

/** Names of the sixteen colours, by their numbers. */
export const PALETTE = [
  ...(["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"] as const),
  ...(["brightBlack", "brightRed", "brightGreen", "brightYellow", "brightBlue", "brightMagenta", "brightCyan", "brightWhite"] as const),
] as const;

/** Smallest contrast of text: WCAG AA. */
export const CONTRAST_MIN = 4.5;

/** Colours of a theme. */
export const colours = (dark: boolean): ITheme => (dark ? DARK : LIGHT);

/** Decoration of search results. */
export const found = (dark: boolean): ISearchDecorationOptions => ({
  matchBackground: dark ? "#57481a" : "#fbe7a6",
  matchOverviewRuler: "#d9a400",
  activeMatchBackground: dark ? "#9a6a12" : "#f5c53d",
  activeMatchColorOverviewRuler: "#ffb000",
});

/** Monospace fonts of common systems. */
export const MONO = 'ui-monospace, "SF Mono", "Cascadia Mono", "JetBrains Mono", Menlo, Consolas, "DejaVu Sans Mono", "Liberation Mono", monospace';
