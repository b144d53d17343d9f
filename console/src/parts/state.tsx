/** State labels, meters, and empty, error and loading states. */

import type { ComponentChildren, JSX } from "preact";
import { Icon, type IconName } from "./icon";

/** Explanations of sandbox states. */
const DESCRIPTIONS: Record<string, string> = {
  creating: "The sandbox is being created",
  running: "The sandbox is awake",
  paused: "The sandbox is frozen and keeps its memory until it is resumed",
  sleeping: "The sandbox uses no memory or CPU; the next call wakes it",
  unreachable: "The sandbox's agent is not responding; its programs may still be running",
  failed: "The sandbox has failed; its files remain until it is destroyed",
  destroyed: "The sandbox was destroyed",
};

/** State of a sandbox, as colour and text. */
export function State({ of, cause }: { of: string; cause?: string | undefined }): JSX.Element {
  return (
    <span class={`state ${DESCRIPTIONS[of] ? of : ""}`} title={cause ?? DESCRIPTIONS[of]}>
      <i aria-hidden="true" />
      {of}
    </span>
  );
}

/** Used part of a limit, as bar and text. */
export function Meter(props: { part: number | undefined; whole: number; text: string; of: string; label: string }): JSX.Element {
  const share = props.part === undefined || props.whole <= 0 ? 0 : Math.min(props.part / props.whole, 1);
  const level = share > 0.9 ? "high" : share > 0.7 ? "raised" : "";
  return (
    <span class="meter" title={`${props.label}: ${props.text} of ${props.of}`}>
      <span class="meter-text">
        {props.text} <em>/ {props.of}</em>
      </span>
      <span class="meter-bar" aria-hidden="true">
        <span class={level} style={{ width: `${(share * 100).toFixed(1)}%` }} />
      </span>
    </span>
  );
}

/** Empty state: what is missing, and what to do. */
export function Empty(props: { icon: IconName; title: string; children?: ComponentChildren }): JSX.Element {
  return (
    <div class="empty">
      <Icon icon={props.icon} />
      <h3>{props.title}</h3>
      {props.children}
    </div>
  );
}

/** Error state: what could not be loaded. */
export function LoadError(props: { message: string; hint: string; again?: () => void }): JSX.Element {
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

/** Placeholder while data is loading. */
export function Loading({ rows = 5 }: { rows?: number }): JSX.Element {
  return (
    <div class="loading" role="status" aria-label="Loading">
      {Array.from({ length: rows }, (_, i) => (
        <span key={i} style={{ width: `${82 - ((i * 29) % 43)}%` }} />
      ))}
    </div>
  );
}
