/** Tab with the background processes of a sandbox; with a name, the log of one of them. */

import type { JSX } from "preact";
import { useLayoutEffect } from "preact/hooks";
import type { Sandbox } from "../../lib/api";
import { now } from "../../lib/clock";
import { bytes, formatDuration, moment, plural, roughDuration } from "../../lib/format";
import { bind, listKeys } from "../../lib/keys";
import { useLoaded } from "../../lib/load";
import { link } from "../../lib/route";
import { Button } from "../../parts/button";
import { Show } from "../../parts/show";
import { Empty } from "../../parts/state";
import { ACTIONS, Table } from "../../parts/table";
import { listProcesses, outcome, type ProcessInfo } from "./api";
import { end, remove } from "./actions";
import { Log } from "./log";
import { openStart } from "./start";

/** How often the list is read again: an event for each start and end is not sent while nobody follows. */
const POLL_MS = 5000;

/** The tab. */
export function Processes({ of, name }: { of: Sandbox; name: string }): JSX.Element {
  return name === "" ? <List of={of} /> : <Log key={name} of={of} id={name} />;
}

function List({ of }: { of: Sandbox }): JSX.Element {
  const { id, state } = of;
  const all = useLoaded((signal) => listProcesses(id, signal), [id, state], {
    everyMs: POLL_MS,
    on: ({ kind, sandbox }) => sandbox === id && kind.startsWith("process_"),
  });
  useLayoutEffect(() => bind(listKeys), []);
  return (
    <Show of={all} rows={3}>
      {(found) => (
        <>
          <div class="subbar">
            <span class="dim">{plural(found.length, "process", "processes")}</span>
            <Button icon="plus" changes onClick={() => openStart(id, all.again)}>
              Start process
            </Button>
          </div>
          {found.length === 0 ? (
            <Empty icon="wake" title="No background processes">
              <p>A background process belongs to no connection: it runs until it ends or is ended, and the server keeps the last MiB of its output.</p>
            </Empty>
          ) : (
            <Table
              kind="processes"
              label={`Processes of ${id}`}
              columns={[
                { name: "Process" },
                { name: "State" },
                { name: "Session", kind: "wide" },
                { name: "Output", number: true, kind: "medium" },
                { name: "Duration", number: true },
                ACTIONS,
              ]}
            >
              {found.map((one) => (
                <Row key={one.id} sandbox={id} of={one} again={all.again} />
              ))}
            </Table>
          )}
        </>
      )}
    </Show>
  );
}

function Row({ sandbox, of, again }: { sandbox: string; of: ProcessInfo; again: () => Promise<void> }): JSX.Element {
  const { text, bad } = outcome(of);
  const runs = of.status === "running";
  return (
    <tr class="row" data-process={of.id}>
      <th scope="row">
        <a class="to" href={link("sandboxes", sandbox, "processes", of.id)}>
          {of.id}
        </a>
        <code class="dim command-line" title={of.command}>
          {of.command}
        </code>
      </th>
      <td>
        <span class={`state ${runs ? "running" : bad ? "failed" : "closed"}`}>
          <i aria-hidden="true" />
          {text}
        </span>
      </td>
      <td class="mono dim wide">{of.session ?? "–"}</td>
      <td class="number medium">{bytes(of.stdout_bytes + of.stderr_bytes)}</td>
      <td class="number cell-age" title={`started ${moment(of.started_at_ms)}`}>
        {runs ? roughDuration(now.value - of.started_at_ms) : of.duration_ms === null ? "–" : formatDuration(of.duration_ms)}
      </td>
      <td class="acts">
        <a class="button plain" href={link("sandboxes", sandbox, "processes", of.id)}>
          Log
        </a>
        {runs && (
          <Button icon="stop" kind="quiet" changes label={`End ${of.id}`} onClick={() => end(sandbox, of, again)} />
        )}
        <Button icon="trash" kind="quiet" changes label={`Remove ${of.id}`} onClick={() => remove(sandbox, of, again)} />
      </td>
    </tr>
  );
}
