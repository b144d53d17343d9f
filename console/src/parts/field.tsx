/** Inputs with labels. */

import type { ComponentChildren, JSX } from "preact";
import { useId } from "preact/hooks";

/** Input with a label. */
export function Field(props: {
  label: string;
  value: string;
  set: (value: string) => void;
  placeholder?: string;
  note?: string;
  first?: boolean;
  type?: string;
  mono?: boolean;
  unit?: string;
  numeric?: boolean;
}): JSX.Element {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{props.label}</label>
      <div class={`input ${props.unit ? "with-unit" : ""}`}>
        <input
          id={id}
          data-first={props.first || undefined}
          class={props.mono ? "mono" : ""}
          type={props.type ?? "text"}
          inputMode={props.numeric ? "numeric" : undefined}
          value={props.value}
          placeholder={props.placeholder}
          autoComplete="off"
          autoCapitalize="off"
          spellcheck={false}
          aria-describedby={props.note ? `${id}-note` : undefined}
          onInput={(event) => props.set(event.currentTarget.value)}
        />
        {props.unit && <span class="unit">{props.unit}</span>}
      </div>
      {props.note && (
        <small id={`${id}-note`} class="note">
          {props.note}
        </small>
      )}
    </div>
  );
}

/** Text of several lines with a label. */
export function Area(props: { label: string; value: string; set: (value: string) => void; placeholder?: string; note?: string; rows?: number; first?: boolean }): JSX.Element {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{props.label}</label>
      <textarea
        id={id}
        class="mono"
        rows={props.rows ?? 3}
        data-first={props.first || undefined}
        value={props.value}
        placeholder={props.placeholder}
        spellcheck={false}
        autoCapitalize="off"
        aria-describedby={props.note ? `${id}-note` : undefined}
        onInput={(event) => props.set(event.currentTarget.value)}
      />
      {props.note && (
        <small id={`${id}-note`} class="note">
          {props.note}
        </small>
      )}
    </div>
  );
}

/** Choice of one of several values. */
export function Select(props: { label: string; value: string; set: (value: string) => void; options: readonly (readonly [value: string, name: string])[]; first?: boolean }): JSX.Element {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{props.label}</label>
      <select id={id} value={props.value} data-first={props.first || undefined} onChange={(event) => props.set(event.currentTarget.value)}>
        {props.options.map(([value, name]) => (
          <option key={value} value={value}>
            {name}
          </option>
        ))}
      </select>
    </div>
  );
}

/** Yes or no. */
export function Check(props: { value: boolean; set: (value: boolean) => void; small?: boolean; children: ComponentChildren }): JSX.Element {
  return (
    <label class={`check ${props.small ? "small" : ""}`}>
      <input type="checkbox" checked={props.value} onChange={(event) => props.set(event.currentTarget.checked)} />
      <span>{props.children}</span>
    </label>
  );
}
