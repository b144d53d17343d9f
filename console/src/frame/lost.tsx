/** Banner while the server is not responding. */

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { retry, streamState as events } from "../lib/events";
import { Button } from "../parts/button";

/** The banner. */
export function ServerLost(): JSX.Element | null {
  const now = events.value;
  const [, tick] = useState(0);
  useEffect(() => {
    if (now.state !== "lost") return;
    const timer = setInterval(() => tick((n) => n + 1), 250);
    return () => clearInterval(timer);
  }, [now]);
  if (now.state !== "lost") return null;
  const left = Math.max(Math.ceil((now.next - Date.now()) / 1000), 0);
  return (
    <div class="lost" role="status">
      <p>
        <strong>The server is not responding.</strong> Sandboxes keep running.{" "}
        {left > 0 ? `Retrying in ${left} s.` : "Retrying …"}
      </p>
      <Button onClick={retry}>Retry now</Button>
    </div>
  );
}
