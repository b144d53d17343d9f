/** Buttons: with words, or with a sign and words for who does not see it. */

import type { ComponentChildren, JSX } from "preact";
import { Icon, type Sign } from "./icon";

interface Props {
  sign?: Sign;
  kind?: "main" | "bad" | "plain" | "quiet";
  onClick?: (event: MouseEvent) => void;
  disabled?: boolean;
  submit?: boolean;
  /** What it is called where only its sign is seen; told on hover too. */
  label?: string;
  pressed?: boolean;
  hint?: string;
  tab?: number;
  children?: ComponentChildren;
}

/** A button. */
export function Button(props: Props): JSX.Element {
  const { sign, kind = "plain", onClick, disabled, submit, label, pressed, hint, tab, children } = props;
  return (
    <button
      type={submit ? "submit" : "button"}
      class={`button ${kind} ${children === undefined ? "square" : ""}`}
      onClick={onClick}
      disabled={disabled}
      aria-label={children === undefined ? label : undefined}
      aria-pressed={pressed}
      title={hint ?? (children === undefined ? label : undefined)}
      tabIndex={tab}
    >
      {sign && <Icon sign={sign} />}
      {children !== undefined && <span>{children}</span>}
    </button>
  );
}

/** Keys as they are written on a keyboard. */
export function Keys({ of }: { of: string }): JSX.Element {
  return (
    <span class="keys">
      {of.split(" ").map((one, i) => (
        <kbd key={i}>{one}</kbd>
      ))}
    </span>
  );
}
