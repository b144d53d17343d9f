/** Page with the events of all sandboxes, as they happen. */

import type { JSX } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { describeError } from "../../lib/api";
import { moment, visibleName } from "../../lib/format";
import { link } from "../../lib/route";
import { followStream } from "../../lib/sse";
import { Button } from "../../parts/button";
import { Filter, matches } from "../../parts/filter";
import { Empty, Loading, LoadError } from "../../parts/state";
import { Table } from "../../parts/table";

/** An event, for display. */
interface Shown {
  /** Unique in this page. */
  number: number;
  kind: string;
  at: number;
  sandbox: string;
  details: string;
}

/** Limit on stored events: the server stores as many. */
const EVENTS_MAX = 4096;
/** Rows per page of the list. */
const ROWS = 200;
/** Events within this time are shown together. */
const COMBINE_MS = 100;
/** After this time without an old event, all old events were read. */
const QUIET_MS = 500;

/** Fields that have a place of their own. */
const PLACED = new Set(["id", "at_ms", "sandbox"]);

function details(data: Record<string, unknown>): string {
  return Object.entries(data)
    .filter(([name, value]) => !PLACED.has(name) && value !== null && value !== "")
    .map(([name, value]) => `${name} ${typeof value === "object" ? JSON.stringify(value) : String(value)}`)
    .join("  ");
}

/** Groups of kinds, by the beginning of their names. */
const GROUPS: Record<string, string[]> = {
  sandboxes: ["created", "running", "paused", "resumed", "sleeping", "woke", "destroyed", "unreachable", "failed", "restored"],
  commands: ["command_", "session_", "process_", "terminal_"],
  network: ["network_", "port_"],
  snapshots: ["snapshot_", "restored"],
  gaps: ["gap", "node_"],
};

const inGroup = (kind: string, group: string): boolean =>
  group === "" || (GROUPS[group] ?? []).some((one) => (one.endsWith("_") ? kind.startsWith(one) : kind === one));

function useEvents(paused: boolean): { all: Shown[] | undefined; lost: boolean; wrong: ReturnType<typeof describeError> | undefined } {
  const [all, setAll] = useState<Shown[]>();
  const [lost, setLost] = useState(false);
  const [wrong, setWrong] = useState<ReturnType<typeof describeError>>();
  useEffect(() => {
    if (paused) return;
    const ends = new AbortController();
    const found: Shown[] = [];
    let number = 0;
    let timer = setTimeout(() => setAll([...found]), QUIET_MS);
    let due = false;
    const show = (): void => {
      due = false;
      setAll([...found]);
    };
    const follow = async (): Promise<void> => {
      const options = { signal: ends.signal, from: "0", lost: () => setLost(true), back: () => setLost(false) };
      for await (const { kind, data } of followStream("/v1/events", options)) {
        const at = typeof data["at_ms"] === "number" ? data["at_ms"] : Date.now();
        found.push({ number: number++, kind, at, sandbox: typeof data["sandbox"] === "string" ? data["sandbox"] : "", details: details(data) });
        if (found.length > EVENTS_MAX) found.shift();
        if (due) continue;
        due = true;
        clearTimeout(timer);
        timer = setTimeout(show, COMBINE_MS);
      }
    };
    follow().catch((error: unknown) => !ends.signal.aborted && setWrong(describeError(error)));
    return () => {
      ends.abort();
      clearTimeout(timer);
    };
  }, [paused]);
  return { all, lost, wrong };
}

/** The page. */
export function EventsPage(): JSX.Element {
  const [paused, setPaused] = useState(false);
  const [wanted, setWanted] = useState("");
  const [group, setGroup] = useState("");
  const [rows, setRows] = useState(ROWS);
  const { all, lost, wrong } = useEvents(paused);
  const shown = useMemo(
    () => all?.filter((one) => inGroup(one.kind, group) && matches(wanted, `${one.kind} ${one.sandbox} ${one.details}`)).reverse(),
    [all, wanted, group],
  );
  return (
    <main class="page" id="main" tabIndex={-1}>
      <div class="bar">
        <h1>
          Events {shown && <span class="count">{shown.length === all?.length ? shown.length : `${shown.length} of ${all?.length}`}</span>}
        </h1>
        <label class="choose">
          <span class="unseen">Kind</span>
          <select value={group} onChange={(event) => setGroup(event.currentTarget.value)}>
            <option value="">all kinds</option>
            {Object.keys(GROUPS).map((name) => (
              <option key={name} value={name}>
                {name}
              </option>
            ))}
          </select>
        </label>
        <Filter value={wanted} set={setWanted} placeholder="Filter by kind, sandbox or content" />
        <Button pressed={paused} onClick={() => setPaused(!paused)} hint="Stop adding new events to the list">
          {paused ? "Continue" : "Pause"}
        </Button>
      </div>
      {lost && (
        <p class="over inline" role="status">
          <strong>Connection lost.</strong> Reconnecting …
        </p>
      )}
      {wrong ? (
        <LoadError {...wrong} />
      ) : !shown ? (
        <Loading rows={8} />
      ) : all?.length === 0 ? (
        <Empty icon="record" title="No events yet">
          <p>Sandboxes that are created, commands that run, ports that open and connections that are refused appear here. The server keeps the last {EVENTS_MAX.toLocaleString("en")} events until it restarts.</p>
        </Empty>
      ) : shown.length === 0 ? (
        <Empty icon="search" title="No event matches">
          <Button
            onClick={() => {
              setWanted("");
              setGroup("");
            }}
          >
            Show all events
          </Button>
        </Empty>
      ) : (
        <Table kind="events" label="Events" columns={[{ name: "Event" }, { name: "Time", number: true }, { name: "Sandbox" }, { name: "Details" }]}>
          {shown.slice(0, rows).map((one) => (
            <tr class="row" key={one.number}>
              <th scope="row">{one.kind.replaceAll("_", " ")}</th>
              <td class="number dim cell-time" title={new Date(one.at).toISOString()}>
                {moment(one.at)}
              </td>
              <td class="mono cell-sandbox">
                {one.sandbox && (
                  <a class="to" href={link("sandboxes", one.sandbox)}>
                    {visibleName(one.sandbox)}
                  </a>
                )}
              </td>
              <td class="mono dim cell-details">{visibleName(one.details)}</td>
            </tr>
          ))}
        </Table>
      )}
      {shown && shown.length > rows && (
        <div class="more">
          <Button onClick={() => setRows(rows + ROWS)}>Show {Math.min(ROWS, shown.length - rows)} more</Button>
        </div>
      )}
    </main>
  );
}
