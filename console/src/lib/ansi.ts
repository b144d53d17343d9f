/**
 * Colours in the output of programs. Understands the escape sequences for colours and emphasis (SGR), and drops
 * all others: output that is shown as text is not a terminal.
 */

/** How a piece of text is shown. Colours are numbers of the palette (0 to 255) or `#rrggbb`. */
export interface Style {
  fg?: number | string;
  bg?: number | string;
  bold?: boolean;
  dim?: boolean;
  italic?: boolean;
  underline?: boolean;
  inverse?: boolean;
}

/** A piece of text in one style. */
export interface Piece {
  text: string;
  style: Style;
}

/** Escape sequences and control characters. */
const ESCAPES = /\x1b(?:\[([0-?]*)[ -/]*([@-~])|\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)|[@-Z\\-_])|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]/g;
/** An escape sequence that the end of a piece of output cut. */
const CUT = /\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b]{0,4096}\x1b?)?$/;

/** Reads one stream of output. Sequences and styles continue from one call to the next. */
export class AnsiReader {
  #style: Style = {};
  #rest = "";

  /** Read more output. */
  read(text: string): Piece[] {
    const all = this.#rest + text;
    const cut = CUT.exec(all);
    this.#rest = cut ? cut[0] : "";
    const whole = cut ? all.slice(0, cut.index) : all;
    const pieces: Piece[] = [];
    let from = 0;
    const add = (to: number): void => {
      if (to > from) pieces.push({ text: lines(whole.slice(from, to)), style: this.#style });
    };
    for (const found of whole.matchAll(ESCAPES)) {
      add(found.index);
      from = found.index + found[0].length;
      if (found[2] === "m") this.#style = applied(this.#style, found[1] ?? "");
    }
    add(whole.length);
    return pieces;
  }
}

/** Text without carriage returns; of a line that was overwritten, as progress bars do, the last version. */
const lines = (text: string): string => text.replace(/[^\n]*\r(?=[^\r\n])/g, "").replace(/\r/g, "");

/** A style after an SGR sequence. */
function applied(before: Style, parameters: string): Style {
  let style = { ...before };
  const all = parameters.split(/[;:]/).map((one) => (one === "" ? 0 : Number(one)));
  for (let at = 0; at < all.length; at++) {
    const code = all[at]!;
    if (code === 0) style = {};
    else if (code === 1) style.bold = true;
    else if (code === 2) style.dim = true;
    else if (code === 3) style.italic = true;
    else if (code === 4) style.underline = true;
    else if (code === 7) style.inverse = true;
    else if (code === 22) delete style.bold, delete style.dim;
    else if (code === 23) delete style.italic;
    else if (code === 24) delete style.underline;
    else if (code === 27) delete style.inverse;
    else if (code >= 30 && code <= 37) style.fg = code - 30;
    else if (code >= 40 && code <= 47) style.bg = code - 40;
    else if (code >= 90 && code <= 97) style.fg = code - 82;
    else if (code >= 100 && code <= 107) style.bg = code - 92;
    else if (code === 39) delete style.fg;
    else if (code === 49) delete style.bg;
    else if (code === 38 || code === 48) {
      const name = code === 38 ? "fg" : "bg";
      if (all[at + 1] === 5) style[name] = clamp(all[at + 2]);
      else if (all[at + 1] === 2) style[name] = hex(all.slice(at + 2, at + 5));
      at += all[at + 1] === 5 ? 2 : 4;
    }
  }
  return style;
}

const clamp = (value = 0): number => Math.min(Math.max(Math.trunc(value) || 0, 0), 255);

const hex = (parts: number[]): string => `#${[0, 1, 2].map((i) => clamp(parts[i]).toString(16).padStart(2, "0")).join("")}`;

/** The colour of a number of the palette beyond the sixteen of the theme: a cube of 6 × 6 × 6 colours, and greys. */
export function paletteColour(index: number): string {
  if (index >= 232) return hex(Array<number>(3).fill(8 + (index - 232) * 10));
  const cube = index - 16;
  const level = (part: number): number => (part === 0 ? 0 : 55 + part * 40);
  return hex([level(Math.floor(cube / 36)), level(Math.floor(cube / 6) % 6), level(cube % 6)]);
}

/** Whether two styles look alike. */
export function same(a: Style, b: Style): boolean {
  return a === b || JSON.stringify(a) === JSON.stringify(b);
}
