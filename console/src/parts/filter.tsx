/** Input that filters a list. */

import type { JSX } from "preact";
import { Keys } from "./button";

/** The input. `/` focuses it. */
export function Filter(props: { value: string; set: (value: string) => void; placeholder: string; small?: boolean; next?: () => void }): JSX.Element {
  return (
    <label class={`filter ${props.small ? "small" : ""}`}>
      <span class="unseen">Filter</span>
      <input
        id="filter"
        type="search"
        placeholder={props.placeholder}
        value={props.value}
        onInput={(event) => props.set(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "Escape") {
            props.set("");
            event.currentTarget.blur();
          } else if (props.next && (event.key === "ArrowDown" || event.key === "Enter")) {
            event.preventDefault();
            props.next();
          }
        }}
      />
      {!props.small && <Keys of="/" />}
    </label>
  );
}

/** Whether a text contains all words of a filter. */
export function matches(filter: string, text: string): boolean {
  const lower = text.toLowerCase();
  return filter
    .toLowerCase()
    .split(/\s+/)
    .every((word) => lower.includes(word));
}
