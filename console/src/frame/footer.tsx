/** Bottom of every page: health of the server, numbers, and the key. */

import type { JSX } from "preact";
import { current } from "../lib/access";
import { streamState as events } from "../lib/events";
import { plural } from "../lib/format";
import { health } from "../lib/health";
import { remembered, setRemembered } from "../lib/key";
import { sorted } from "../lib/sandboxes";
import { Check } from "../parts/field";

/** The footer. */
export function Footer(): JSX.Element {
  const word = health.value;
  const state = events.value.state;
  const all = sorted.value;
  const of = (state: string): number => all.filter((one) => one.state === state).length;
  const counts = ["running", "paused", "sleeping", "failed", "unreachable"].map((state) => [state, of(state)] as const);
  const good = state === "live" && word?.status === "ok";
  const label = state === "lost" ? "not reachable" : state === "connecting" ? "connecting" : (word?.status ?? "…");
  return (
    <footer class="bottom">
      <span id="health" tabIndex={-1} class={`health ${good ? "good" : state === "connecting" ? "" : "bad"}`}>
        <i aria-hidden="true" />
        server {label}
      </span>
      {word && <span>v{word.version}</span>}
      {current.value?.read_only && (
        <span class="chip" title="Controls that change something are not shown">
          read-only key
        </span>
      )}
      <span class="counts">
        {plural(all.length, "sandbox", "sandboxes")}
        {counts
          .filter(([, count]) => count > 0)
          .map(([state, count]) => ` · ${count} ${state}`)
          .join("")}
      </span>
      <span class="remember" title="The key stays in this browser after the tab is closed">
        <Check small value={remembered.value} set={(value) => setRemembered(value)}>
          Remember the key on this device
        </Check>
      </span>
    </footer>
  );
}
