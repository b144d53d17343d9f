/** Page with the audit log of the tenant. */

import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import { api } from "../../lib/api";
import { saveFile } from "../../lib/download";
import { moment, visibleName } from "../../lib/format";
import { useLoaded } from "../../lib/load";
import { attempt } from "../../lib/notice";
import { link } from "../../lib/route";
import { Button } from "../../parts/button";
import { Filter, matches } from "../../parts/filter";
import { Show } from "../../parts/show";
import { Empty } from "../../parts/state";
import { Table } from "../../parts/table";

/** An entry, for display. */
interface Shown {
  seq: number;
  at: number;
  event: string;
  sandbox: string | null;
  key: string;
  from: string;
  details: string;
  refused: boolean;
}

interface Log {
  /** The latest entries, the latest first. */
  entries: Shown[];
  /** Number of all entries. */
  count: number;
}

/** Limit on stored entries: the log can hold about a hundred thousand. */
const ENTRIES_MAX = 5000;
const ROWS = 200;
/** Fields that have a column of their own. */
const PLACED = new Set(["key", "from", "call", "status"]);

async function read(signal: AbortSignal): Promise<Log> {
  const entries: Shown[] = [];
  let count = 0;
  for await (const { seq, at, event, sandbox, data } of api().audit({ signal })) {
    count++;
    const rest = Object.entries(data).filter(([name]) => !PLACED.has(name));
    const status = Number(data["status"] ?? 200);
    entries.push({
      seq,
      at: at.getTime(),
      event,
      sandbox,
      key: String(data["key"] ?? ""),
      from: String(data["from"] ?? ""),
      details: [data["call"], ...rest.map(([name, value]) => `${name} ${String(value)}`), status >= 400 ? `status ${status}` : ""].filter(Boolean).join("  "),
      refused: status >= 400,
    });
    if (entries.length > ENTRIES_MAX * 2) entries.splice(0, ENTRIES_MAX);
  }
  return { entries: entries.slice(-ENTRIES_MAX).reverse(), count };
}

/** The page. */
export function AuditPage(): JSX.Element {
  const log = useLoaded(read, []);
  const [wanted, setWanted] = useState("");
  const [rows, setRows] = useState(ROWS);
  const shown = useMemo(
    () => log.value?.entries.filter((one) => matches(wanted, `${one.event} ${one.sandbox ?? ""} ${one.key} ${one.from} ${one.details}`)) ?? [],
    [log.value, wanted],
  );
  const download = (): Promise<unknown> =>
    attempt("Could not download the audit log", async () => saveFile(await (await api().send("/v1/audit")).blob(), "audit.jsonl"));
  return (
    <main class="page" id="main" tabIndex={-1}>
      <div class="bar">
        <h1>
          Audit log {log.value && <span class="count">{wanted ? `${shown.length} of ${log.value.count}` : log.value.count}</span>}
        </h1>
        <Filter value={wanted} set={setWanted} placeholder="Filter by event, sandbox, key or address" />
        <Button icon="again" kind="quiet" label="Refresh" onClick={() => void log.again()} />
        <Button icon="down" onClick={() => void download()} hint="All entries with their signatures, one per line">
          Download
        </Button>
      </div>
      <Show of={log} rows={8}>
        {({ entries, count }) =>
          count === 0 ? (
            <Empty icon="file" title="The audit log is empty">
              <p>Calls that change something are recorded here, with their key, address and time.</p>
            </Empty>
          ) : shown.length === 0 ? (
            <Empty icon="search" title={`No matches for “${wanted}”`}>
              <Button onClick={() => setWanted("")}>Show all entries</Button>
            </Empty>
          ) : (
            <>
              <Table
                kind="audit"
                label="Audit log"
                columns={[{ name: "Event" }, { name: "Time", number: true }, { name: "Sandbox" }, { name: "Key", kind: "medium" }, { name: "From", kind: "wide" }, { name: "Call" }]}
              >
                {shown.slice(0, rows).map((one) => (
                  <tr class="row" key={one.seq}>
                    <th scope="row">
                      {one.event}
                      {one.refused && <span class="chip">failed</span>}
                    </th>
                    <td class="number dim cell-time" title={new Date(one.at).toISOString()}>
                      {moment(one.at)}
                    </td>
                    <td class="mono cell-sandbox">
                      {one.sandbox !== null && (
                        <a class="to" href={link("sandboxes", one.sandbox)}>
                          {visibleName(one.sandbox)}
                        </a>
                      )}
                    </td>
                    <td class="mono dim medium">{one.key || "the server"}</td>
                    <td class="mono dim wide">{one.from}</td>
                    <td class="mono dim cell-details">{visibleName(one.details)}</td>
                  </tr>
                ))}
              </Table>
              {shown.length > rows && (
                <div class="more">
                  <Button onClick={() => setRows(rows + ROWS)}>Show {Math.min(ROWS, shown.length - rows)} more</Button>
                </div>
              )}
              {count > entries.length && <p class="note">Only the latest {entries.length.toLocaleString("en")} entries are shown. The download has all.</p>}
            </>
          )
        }
      </Show>
    </main>
  );
}
