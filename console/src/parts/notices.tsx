/** Display of notices. */

import type { JSX } from "preact";
import { dismiss, notices } from "../lib/notice";
import { Button } from "./button";

/** All current notices. */
export function Notices(): JSX.Element {
  return (
    <div class="notices" role="status" aria-live="polite">
      {notices.value.map(({ number, kind, message, hint }) => (
        <div key={number} class={`notice ${kind}`} role={kind === "failed" ? "alert" : undefined}>
          <div>
            <p>{message}</p>
            {hint && <p class="dim">{hint}</p>}
          </div>
          <Button icon="close" kind="quiet" label="Dismiss" onClick={() => dismiss(number)} />
        </div>
      ))}
    </div>
  );
}
