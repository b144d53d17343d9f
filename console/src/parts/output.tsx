/** Output of a program, with its colours. */

import type { JSX } from "preact";
import { paletteColour, type Style } from "../lib/ansi";
import { readable } from "../lib/contrast";
import { dark } from "../lib/theme";
import { colours, CONTRAST_MIN, PALETTE } from "../terminal/theme";

/** A piece of output in one style. */
export interface Part {
  err: boolean;
  text: string;
  style: Style;
}

const isPlain = (style: Style): boolean => Object.keys(style).length === 0;

/**
 * The pieces. Standard error without colours of its own is red. Output is appended to the same list, so `version`
 * says when it must be drawn again.
 */
export function Output({ parts }: { parts: readonly Part[]; version: number }): JSX.Element {
  return (
    <>
      {parts.map(({ err, text, style }, i) =>
        isPlain(style) ? err ? <span key={i} class="err">{text}</span> : text : (
          <span key={i} class={err ? "err" : undefined} style={css(style)}>
            {text}
          </span>
        ),
      )}
    </>
  );
}

function css(style: Style): JSX.CSSProperties {
  const theme = colours(dark.value);
  const named = (colour: number | string | undefined): string | undefined => {
    if (typeof colour !== "number") return colour;
    return colour < 16 ? theme[PALETTE[colour]!] : paletteColour(colour);
  };
  // Bold text in one of the first eight colours is bright, as in terminals.
  const bright = style.bold && typeof style.fg === "number" && style.fg < 8 ? style.fg + 8 : style.fg;
  let fg = named(bright);
  let bg = named(style.bg);
  if (style.inverse) [fg, bg] = [bg ?? theme.background!, fg ?? theme.foreground!];
  const all: JSX.CSSProperties = {};
  // `--sunk`, the background of output.
  const ground = bg ?? (dark.value ? "#0c0e11" : "#f0f0ed");
  if (fg !== undefined || bg !== undefined) all.color = readable(fg ?? theme.foreground!, ground, CONTRAST_MIN);
  if (bg !== undefined) all.backgroundColor = bg;
  if (style.bold) all.fontWeight = 700;
  if (style.italic) all.fontStyle = "italic";
  if (style.underline) all.textDecoration = "underline";
  if (style.dim && fg === undefined && bg === undefined) all.color = "var(--dim)";
  return all;
}
