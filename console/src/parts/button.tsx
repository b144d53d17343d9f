/** Buttons and key caps. */

import type { ComponentChildren, JSX } from "preact";
import { mayChange } from "../lib/access";
import { Icon, type IconName } from "./icon";

interface Props {
  icon?: IconName;
  kind?: "main" | "bad" | "plain" | "quiet";
  onClick?: (event: MouseEvent) => void;
  disabled?: boolean;
  submit?: boolean;
  /** Accessible name of a button that shows only an icon; also its tooltip. */
  label?: string;
  pressed?: boolean;
  hint?: string;
  tab?: number;
  /** It changes something: not shown to keys that may only read. */
  changes?: boolean;
  children?: ComponentChildren;
}

/** A button. */
export function Button(props: Props): JSX.Element | null {
  const { icon, kind = "plain", onClick, disabled, submit, label, pressed, hint, tab, children } = props;
  if (props.changes && !mayChange.value) return null;
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
      {icon && <Icon icon={icon} />}
      {children !== undefined && <span>{children}</span>}
    </button>
  );
}

/** Key caps. */
export function Keys({ of }: { of: string }): JSX.Element {
  return (
    <span class="keys">
      {of.split(" ").map((one, i) => (
        <kbd key={i}>{one}</kbd>
      ))}
    </span>
  );
}
