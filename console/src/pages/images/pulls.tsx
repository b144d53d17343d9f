/** Pulls of images with their progress. They continue when the user leaves the page. */

import { events, IsoletError } from "@isolet/sdk";
import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { api, describeError } from "../../lib/api";
import { bytes } from "../../lib/format";
import { notifySuccess } from "../../lib/notice";
import { Button } from "../../parts/button";

interface Pull {
  number: number;
  image: string;
  phase: string;
  done: number;
  total: number;
  wrong?: { message: string; hint: string };
}

const pulls = signal<readonly Pull[]>([]);
let count = 0;

function set(number: number, change: Partial<Pull>): void {
  pulls.value = pulls.value.map((one) => (one.number === number ? { ...one, ...change } : one));
}

const forget = (number: number): void => void (pulls.value = pulls.value.filter((one) => one.number !== number));

/** Pull an image. */
export function pull(image: string, done: () => Promise<void>): void {
  const number = ++count;
  pulls.value = [...pulls.value, { number, image, phase: "starting", done: 0, total: 0 }];
  const run = async (): Promise<void> => {
    const response = await api().send("/v1/images/pull", { json: { image }, headers: { accept: "text/event-stream" } });
    for await (const { event, data } of events(response.body!)) {
      const fields = JSON.parse(data) as { phase: string; done: number; total: number; error: string; message: string; hint: string };
      if (event === "progress") set(number, { phase: fields.phase, done: fields.done, total: fields.total });
      else if (event === "error") throw new IsoletError(500, fields.error, fields.message, fields.hint);
      else if (event === "done") {
        forget(number);
        notifySuccess(`${image} was pulled`);
        return done();
      }
    }
    throw new IsoletError(0, "cut", "the connection was lost", "the server continues; look at the list of images");
  };
  run().catch((error: unknown) => {
    set(number, { wrong: describeError(error) });
    void done();
  });
}

/** All pulls. */
export function Pulls(): JSX.Element | null {
  if (pulls.value.length === 0) return null;
  return (
    <ul class="uploads" aria-label="Pulls">
      {pulls.value.map((one) => (
        <li key={one.number} class={one.wrong ? "failed" : ""} data-pull={one.image}>
          <span class="mono">{one.image}</span>
          <progress max={Math.max(one.total, 1)} value={one.total === 0 && !one.wrong ? undefined : one.done} aria-label={`Pull of ${one.image}`} />
          <span class="dim" role={one.wrong ? "alert" : undefined}>
            {one.wrong ? [one.wrong.message, one.wrong.hint].filter(Boolean).join(": ") : one.total > 0 ? `${one.phase}, ${bytes(one.done)} of ${bytes(one.total)}` : one.phase}
          </span>
          {one.wrong && <Button icon="close" kind="quiet" label="Dismiss" onClick={() => forget(one.number)} />}
        </li>
      ))}
    </ul>
  );
}
