/** List of all sandboxes. */

import { computed, signal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { readOnly } from "../../lib/access";
import * as actions from "../../lib/actions";
import type { Sandbox } from "../../lib/api";
import { now } from "../../lib/clock";
import { bytes, cores, plural, mib, roughDuration } from "../../lib/format";
import { bind, listKeys, step } from "../../lib/keys";
import { go, link } from "../../lib/route";
import { loadError, measured, reload, sandboxes, sessions, sorted, watchSandbox } from "../../lib/sandboxes";
import { Button } from "../../parts/button";
import { Filter, matches } from "../../parts/filter";
import { Empty, Loading, Meter, State, LoadError } from "../../parts/state";
import { openCreate } from "./create";

const filter = signal("");
const found = computed(() => sorted.value.filter((one) => matches(filter.value, `${one.id} ${one.state} ${one.image}`)));
/** Number of rows per page of the list. */
const ROWS = 200;

/** The page. */
export function Sandboxes(): JSX.Element {
  const [rows, setRows] = useState(ROWS);
  useLayoutEffect(
    () =>
      bind([
        ...listKeys,
        { group: "Lists", keys: "t", label: "Open a terminal of the focused sandbox", run: () => focused((id) => go("sandboxes", id, "terminal")) },
        { group: "Lists", keys: "Delete", label: "Destroy the focused sandbox", run: () => focused(actions.destroy) },
      ]),
    [],
  );
  const all = sandboxes.value;
  return (
    <main class="page" id="main" tabIndex={-1}>
      <div class="bar">
        <h1>
          Sandboxes {all && <span class="count">{filter.value ? `${found.value.length} of ${all.size}` : all.size}</span>}
        </h1>
        <Filter value={filter.value} set={(text) => (filter.value = text)} placeholder="Filter by id, state or image" next={() => step(".row a.to", 1)} />
        <Button icon="plus" kind="main" changes onClick={openCreate} hint="New sandbox (n)">
          New sandbox
        </Button>
      </div>
      <Table rows={rows} />
      {found.value.length > rows && (
        <div class="more">
          <Button onClick={() => setRows(rows + ROWS)}>Show {Math.min(ROWS, found.value.length - rows)} more</Button>
        </div>
      )}
    </main>
  );
}

function focused(run: (id: string) => void): void {
  const id = document.activeElement?.closest<HTMLElement>("[data-sandbox]")?.dataset["sandbox"];
  if (id !== undefined) run(id);
}

function Table({ rows }: { rows: number }): JSX.Element {
  const all = sandboxes.value;
  if (!all) return loadError.value ? <LoadError {...loadError.value} again={() => void reload()} /> : <Loading rows={6} />;
  if (all.size === 0) {
    return (
      <Empty icon="box" title="No sandboxes yet">
        <p>
          A sandbox has its own files, shells and programs. It starts within milliseconds and uses no memory or CPU
          while it sleeps.
        </p>
        <Button icon="plus" kind="main" changes onClick={openCreate}>
          New sandbox
        </Button>
        <p class="dim">
          or on the command line: <code>isolet shell demo</code>
        </p>
      </Empty>
    );
  }
  if (found.value.length === 0) {
    return (
      <Empty icon="search" title={`No matches for “${filter.value}”`}>
        <Button onClick={() => (filter.value = "")}>Show all {plural(all.size, "sandbox", "sandboxes")}</Button>
      </Empty>
    );
  }
  return (
    <table class="list sandboxes" aria-label="Sandboxes">
      <thead>
        <tr>
          <th scope="col">Id</th>
          <th scope="col">State</th>
          <th scope="col">Memory</th>
          <th scope="col">CPU</th>
          <th scope="col" class="number">
            Sessions
          </th>
          <th scope="col" class="number">
            Age
          </th>
          <th scope="col" class="number">
            Sleep after
          </th>
          <th scope="col">
            <span class="unseen">Actions</span>
          </th>
        </tr>
      </thead>
      <tbody>
        {found.value.slice(0, rows).map((one) => (
          <Row key={one.id} of={one} />
        ))}
      </tbody>
    </table>
  );
}

/** Report whether a row is visible: only visible sandboxes are polled for usage. */
function useSight(id: string): { current: HTMLTableRowElement | null } {
  const ref = useRef<HTMLTableRowElement>(null);
  useEffect(() => {
    let leave: (() => void) | undefined;
    const seen = new IntersectionObserver(([entry]) => {
      if (entry?.isIntersecting) leave ??= watchSandbox(id);
      else {
        leave?.();
        leave = undefined;
      }
    });
    seen.observe(ref.current!);
    return () => {
      seen.disconnect();
      leave?.();
    };
  }, [id]);
  return ref;
}

function Row({ of: { id, state, cause, memory_mib, cpu_millis, created_at_ms, sleep_after_s } }: { of: Sandbox }): JSX.Element {
  const ref = useSight(id);
  const uses = state === "running" ? measured.value.get(id) : undefined;
  const count = sessions.value.get(id)?.length;
  const busy = sessions.value.get(id)?.filter((one) => one.busy).length ?? 0;
  return (
    <tr class="row" ref={ref} data-sandbox={id}>
      <th scope="row">
        <a class="to" href={link("sandboxes", id)}>
          {id}
        </a>
      </th>
      <td class="cell-state">
        <State of={state} cause={cause} />
      </td>
      <td class="cell-memory">
        {uses ? (
          <Meter part={uses.memory} whole={memory_mib * 1048576} text={bytes(uses.memory)} of={mib(memory_mib)} label="Memory" />
        ) : (
          <span class="dim">–</span>
        )}
      </td>
      <td class="cell-cpu">
        {uses?.cpu !== undefined ? (
          <Meter part={uses.cpu} whole={cpu_millis} text={cores(uses.cpu)} of={cores(cpu_millis)} label="CPU" />
        ) : (
          <span class="dim">–</span>
        )}
      </td>
      <td class="number cell-sessions">
        {count === undefined ? "–" : count}
        {busy > 0 && <span class="busy">{busy} busy</span>}
      </td>
      <td class="number cell-age" title={new Date(created_at_ms).toLocaleString()}>
        {roughDuration(now.value - created_at_ms)}
      </td>
      <td class="number cell-sleep">{sleep_after_s === null ? "never" : roughDuration(sleep_after_s * 1000)}</td>
      <td class="acts">
        {!readOnly.value && (
          <a class="button plain" href={link("sandboxes", id, "terminal")} title={`Terminal of ${id} (t)`}>
            Terminal
          </a>
        )}
        {state === "sleeping" ? (
          <Button icon="wake" kind="quiet" changes label={`Wake ${id}`} onClick={() => void actions.wake(id)} />
        ) : state === "paused" ? (
          <Button icon="wake" kind="quiet" changes label={`Resume ${id}`} onClick={() => void actions.resume(id)} />
        ) : (
          <Button icon="sleep" kind="quiet" changes label={`Put ${id} to sleep`} disabled={state !== "running"} onClick={() => void actions.sleep(id)} />
        )}
        <Button icon="trash" kind="quiet" changes label={`Destroy ${id}`} onClick={() => actions.destroy(id)} />
      </td>
    </tr>
  );
}
