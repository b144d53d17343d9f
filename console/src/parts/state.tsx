/** A sandbox's state, by colour and word; and how much of a limit is used. */

import type { ComponentChildren, JSX } from "preact";
import { Icon, type Sign } from "./icon";

/** What a state means, in a few words. */
const MEANS: Record<string, string> = {
  creating: "It is being made",
  running: "It runs",
  sleeping: "Nothing of it runs; the next call wakes it",
  unreachable: "Its agent does not answer; what runs in it may run on",
  failed: "It has ended by a fault; its files stay until it is destroyed",
  destroyed: "It is gone",
};

/** A state. */
export function State({ of, cause }: { of: string; cause?: string | undefined }): JSX.Element {
  return (
    <span class={`state ${MEANS[of] ? of : ""}`} title={cause ?? MEANS[of]}>
      <i aria-hidden="true" />
      {of}
    </span>
  );
}

/** A part of a whole, as a bar with words. */
export function Meter(props: { part: number | undefined; whole: number; says: string; of: string; label: string }): JSX.Element {
  const share = props.part === undefined || props.whole <= 0 ? 0 : Math.min(props.part / props.whole, 1);
  const level = share > 0.9 ? "high" : share > 0.7 ? "raised" : "";
  return (
    <span class="meter" title={`${props.label}: ${props.says} of ${props.of}`}>
      <span class="meter-says">
        {props.says} <em>/ {props.of}</em>
      </span>
      <span class="meter-bar" aria-hidden="true">
        <span class={level} style={{ width: `${(share * 100).toFixed(1)}%` }} />
      </span>
    </span>
  );
}

/** Says that there is nothing, why, and what to do. */
export function Empty(props: { sign: Sign; title: string; children?: ComponentChildren }): JSX.Element {
  return (
    <div class="empty">
      <Icon sign={props.sign} />
      <h3>{props.title}</h3>
      {props.children}
    </div>
  );
}

/** Says what could not be read. */
export function Wrong(props: { message: string; hint: string; again?: () => void }): JSX.Element {
  return (
    <div class="empty bad" role="alert">
      <h3>{props.message}</h3>
      {props.hint && <p>{props.hint}</p>}
      {props.again && (
        <button type="button" class="button plain" onClick={props.again}>
          Try again
        </button>
      )}
    </div>
  );
}

/** Lines that stand for what is on its way. */
export function Loading({ rows = 5 }: { rows?: number }): JSX.Element {
  return (
    <div class="loading" role="status" aria-label="Loading">
      {Array.from({ length: rows }, (_, i) => (
        <span key={i} style={{ width: `${82 - ((i * 29) % 43)}%` }} />
      ))}
    </div>
  );
}
