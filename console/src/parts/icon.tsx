/** Icons, drawn with one stroke width on a 16-pixel grid. */

import type { JSX } from "preact";

const PATHS = {
  terminal: "M2.5 3.5h11v9h-11zM5 6.5l2 1.75-2 1.75M8.5 10.25H11",
  box: "M8 2l5.5 3v6L8 14l-5.5-3V5zM2.5 5L8 8l5.5-3M8 8v6",
  plus: "M8 3v10M3 8h10",
  close: "M4 4l8 8M12 4l-8 8",
  search: "M7 11.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9zM10.5 10.5L13.5 13.5",
  moon: "M13 9.5A5.5 5.5 0 0 1 6.5 3 5.5 5.5 0 1 0 13 9.5z",
  sun: "M8 10.75a2.75 2.75 0 1 0 0-5.5 2.75 2.75 0 0 0 0 5.5zM8 1.5v1.5M8 13v1.5M1.5 8H3M13 8h1.5M3.4 3.4l1 1M11.6 11.6l1 1M3.4 12.6l1-1M11.6 4.4l1-1",
  trash: "M3 4.5h10M6.5 4.5V3h3v1.5M4.25 4.5l.6 8.5h6.3l.6-8.5M6.75 7v3.75M9.25 7v3.75",
  sleep: "M9.5 3H13L9.5 7H13M3 8.5h4.5L3 13.5h4.5",
  wake: "M9 1.75L3.75 9H8l-1 5.25L12.25 7H8z",
  folder: "M2 4.25c0-.4.3-.75.75-.75H6l1.5 1.75h5.75c.4 0 .75.3.75.75v5.75c0 .4-.3.75-.75.75H2.75a.75.75 0 0 1-.75-.75z",
  file: "M4 2h5l3 3v9H4zM9 2v3h3",
  link: "M6.5 9.5l3-3M7.25 5l1-1a2.3 2.3 0 0 1 3.25 3.25l-1 1M8.75 11l-1 1A2.3 2.3 0 0 1 4.5 8.75l1-1",
  up: "M8 12.5v-9M4.5 6.75L8 3.25l3.5 3.5M3 14h10",
  down: "M8 2.5v9M4.5 8.25L8 11.75l3.5-3.5M3 14h10",
  edit: "M10.5 3l2.5 2.5L6 12.5l-3 .5.5-3z",
  again: "M13 8a5 5 0 1 1-1.6-3.7M13 2.5v2.75h-2.75",
  eye: "M1.75 8S4 3.75 8 3.75 14.25 8 14.25 8 12 12.25 8 12.25 1.75 8 1.75 8zM8 9.75a1.75 1.75 0 1 0 0-3.5 1.75 1.75 0 0 0 0 3.5z",
  record: "M8 11.25a3.25 3.25 0 1 0 0-6.5 3.25 3.25 0 0 0 0 6.5z",
  keys: "M2 4.5h12v7H2zM4.5 7h.01M7 7h.01M9.25 7h.01M11.5 7h.01M5 9.25h6",
  right: "M6 3.5L10.5 8 6 12.5",
  exit: "M6.5 3H3v10h3.5M9.5 5l3 3-3 3M12.25 8H6.5",
  stop: "M4 4h8v8H4z",
  power: "M8 2v5.5M4.75 4.25a5 5 0 1 0 6.5 0",
} as const;

/** Names of the icons. */
export type IconName = keyof typeof PATHS;

/** A decorative icon: the text beside it, or its button's label, carries the meaning. */
export function Icon({ icon }: { icon: IconName }): JSX.Element {
  return (
    <svg class="icon" viewBox="0 0 16 16" aria-hidden="true" focusable="false">
      <path d={PATHS[icon]} />
    </svg>
  );
}
