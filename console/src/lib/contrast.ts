/** Contrast of colours, by the definition of WCAG 2. */

function parts(colour: string): [number, number, number] {
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  return [r!, g!, b!];
}

function luminance(colour: string): number {
  const [r, g, b] = parts(colour).map((part) => {
    const share = part / 255;
    return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r! + 0.7152 * g! + 0.0722 * b!;
}

/** Ratio of two colours `#rrggbb`, from 1 to 21. */
export function contrast(a: string, b: string): number {
  const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
  return (high! + 0.05) / (low! + 0.05);
}

/** Steps from a colour to black or white. */
const STEPS = 10;

/** The colour that is closest to `fg` and has at least the given contrast to `bg`. */
export function readable(fg: string, bg: string, ratio: number): string {
  if (contrast(fg, bg) >= ratio) return fg;
  const towards = contrast("#000000", bg) > contrast("#ffffff", bg) ? 0 : 255;
  const from = parts(fg);
  for (let step = 1; step <= STEPS; step++) {
    const mixed = from.map((part) => Math.round(part + ((towards - part) * step) / STEPS));
    const colour = `#${mixed.map((part) => part.toString(16).padStart(2, "0")).join("")}`;
    if (contrast(colour, bg) >= ratio) return colour;
  }
  return towards === 0 ? "#000000" : "#ffffff";
}
