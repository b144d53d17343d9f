/** Tables that become lists of cards on narrow screens. */

import type { ComponentChildren, JSX } from "preact";

/** A column. */
export interface Column {
  name: string;
  number?: boolean;
  /** Class of the heading; `wide` and `medium` hide it on narrower screens, as in the cells. */
  kind?: string;
  /** The heading is for screen readers only. */
  unseen?: boolean;
}

/** Heading of the column with a row's buttons. */
export const ACTIONS: Column = { name: "Actions", unseen: true };

/** A table. The first cell of each row is its heading (`th`). */
export function Table(props: { label: string; kind: string; columns: Column[]; children: ComponentChildren }): JSX.Element {
  return (
    <table class={`list ${props.kind}`} aria-label={props.label}>
      <thead>
        <tr>
          {props.columns.map(({ name, number, kind = "", unseen }) => (
            <th key={name} scope="col" class={`${number ? "number" : ""} ${kind}`}>
              {unseen ? <span class="unseen">{name}</span> : name}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>{props.children}</tbody>
    </table>
  );
}
