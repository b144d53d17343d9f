/** Comparison of two snapshots: the paths that differ. */

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { api } from "../../lib/api";
import { bytes, plural, visibleName } from "../../lib/format";
import { useLoaded } from "../../lib/load";
import { attempt } from "../../lib/notice";
import { link, move } from "../../lib/route";
import { Button } from "../../parts/button";
import { Filter, matches } from "../../parts/filter";
import { Show } from "../../parts/show";
import { Empty } from "../../parts/state";
import { Table } from "../../parts/table";

interface Change {
  path: string;
  type: string;
  size: number;
  mode: string;
  change: string;
}

interface DiffPage {
  changes: Change[];
  next: string | null;
}

/** Changes per request. */
const PAGE = 1000;

async function read(from: string, to: string, cursor: string | null, signal?: AbortSignal): Promise<DiffPage> {
  const query = new URLSearchParams({ limit: String(PAGE), ...(cursor === null ? {} : { cursor }) });
  const path = `/v1/snapshots/${encodeURIComponent(from)}/diff/${encodeURIComponent(to)}?${query}`;
  const { changes, next_cursor } = await api().json<{ changes: Change[]; next_cursor: string | null }>(path, { signal });
  return { changes, next: next_cursor };
}

/** The page. */
export function Diff({ from, to }: { from: string; to: string }): JSX.Element {
  const [wanted, setWanted] = useState("");
  const [more, setMore] = useState<DiffPage>();
  const first = useLoaded((signal) => read(from, to, null, signal), [from, to]);
  return (
    <main class="page" id="main" tabIndex={-1}>
      <div class="bar">
        <h1>Compare snapshots</h1>
        <p class="grow mono">
          {visibleName(from)} <span class="dim">→</span> {visibleName(to)}
        </p>
        <Filter value={wanted} set={setWanted} placeholder="Filter by path" />
        <Button onClick={() => move("snapshots", "compare", to, from)}>Swap</Button>
        <a class="button plain" href={link("snapshots")}>
          All snapshots
        </a>
      </div>
      <Show of={first} rows={8}>
        {(value) => {
          const all = [...value.changes, ...(more?.changes ?? [])];
          const next = more ? more.next : value.next;
          const shown = all.filter((one) => matches(wanted, `${one.change} ${one.path}`));
          const read_more = async (): Promise<void> => {
            const page = await attempt("Could not compare", () => read(from, to, next));
            if (page) setMore({ changes: [...(more?.changes ?? []), ...page.changes], next: page.next });
          };
          if (all.length === 0 && next === null) {
            return (
              <Empty icon="eye" title="The snapshots have the same files">
                <p>No path differs in type, mode, owner, size, content or extended attributes.</p>
              </Empty>
            );
          }
          return (
            <>
              <p class="dim summary" role="status">
                {plural(all.length, "change")}
                {next !== null && " so far"}
              </p>
              <Table kind="changes" label="Changes" columns={[{ name: "Path" }, { name: "Change" }, { name: "Type", kind: "medium" }, { name: "Size", number: true }, { name: "Mode", kind: "wide" }]}>
                {shown.map((one) => (
                  <tr class="row" key={`${one.change} ${one.path}`}>
                    <th scope="row" class="mono">
                      {visibleName(one.path)}
                    </th>
                    <td class={`is-${one.change}`}>{one.change}</td>
                    <td class="dim medium">{one.type}</td>
                    <td class="number dim">{one.type === "directory" ? "" : bytes(one.size)}</td>
                    <td class="mono dim wide">{one.mode}</td>
                  </tr>
                ))}
              </Table>
              {next !== null && (
                <div class="more">
                  <Button onClick={() => void read_more()}>Show more</Button>
                </div>
              )}
            </>
          );
        }}
      </Show>
    </main>
  );
}
