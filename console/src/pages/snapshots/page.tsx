/** Page with all snapshots of the tenant, also of sandboxes that were destroyed; or the comparison of two. */

import type { Snapshot } from "@isolet/sdk";
import type { JSX } from "preact";
import { useLayoutEffect, useState } from "preact/hooks";
import { api } from "../../lib/api";
import { bind, listKeys } from "../../lib/keys";
import { useLoaded } from "../../lib/load";
import { Button } from "../../parts/button";
import { Filter, matches } from "../../parts/filter";
import { Show } from "../../parts/show";
import { Empty } from "../../parts/state";
import { openCompare } from "../../sandbox/snapshots/compare";
import { SnapshotTable } from "../../sandbox/snapshots/table";
import { Diff } from "./diff";

/** How often the list is read again: other clients take and delete snapshots, and lifetimes end. */
const POLL_MS = 10_000;

/** The page. */
export function SnapshotsPage({ rest }: { rest: string[] }): JSX.Element {
  const [first, one, other] = rest;
  if (first === "compare" && one !== undefined && other !== undefined) return <Diff key={`${one}/${other}`} from={one} to={other} />;
  return <List />;
}

function List(): JSX.Element {
  const [wanted, setWanted] = useState("");
  const all = useLoaded<Snapshot[]>(
    async () => (await api().listSnapshots()).sort((one, other) => other.createdAt.getTime() - one.createdAt.getTime()),
    [],
    { everyMs: POLL_MS, on: ({ kind }) => kind.startsWith("snapshot_") },
  );
  useLayoutEffect(() => bind(listKeys), []);
  const shown = all.value?.filter((one) => matches(wanted, `${one.id} ${one.name ?? ""} ${one.sandboxId}`));
  return (
    <main class="page" id="main" tabIndex={-1}>
      <div class="bar">
        <h1>
          Snapshots {shown && <span class="count">{wanted ? `${shown.length} of ${all.value?.length}` : shown.length}</span>}
        </h1>
        <Filter value={wanted} set={setWanted} placeholder="Filter by name, id or sandbox" />
        <Button disabled={(all.value?.length ?? 0) < 2} onClick={() => openCompare(all.value ?? [])}>
          Compare
        </Button>
      </div>
      <Show of={all}>
        {(found) =>
          found.length === 0 ? (
            <Empty icon="box" title="No snapshots yet">
              <p>A snapshot holds the files of a sandbox and the state of its shells. Take one on the page of a sandbox.</p>
            </Empty>
          ) : shown!.length === 0 ? (
            <Empty icon="search" title={`No matches for “${wanted}”`}>
              <Button onClick={() => setWanted("")}>Show all snapshots</Button>
            </Empty>
          ) : (
            <SnapshotTable label="Snapshots" all={shown!} again={all.again} />
          )
        }
      </Show>
    </main>
  );
}
