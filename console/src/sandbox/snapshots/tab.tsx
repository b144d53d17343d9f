/** Tab with the snapshots of a sandbox: take, restore, compare, delete, and sandboxes from them; and forks. */

import type { Snapshot } from "@isolet/sdk";
import type { JSX } from "preact";
import { api, type Sandbox } from "../../lib/api";
import { plural } from "../../lib/format";
import { useLoaded } from "../../lib/load";
import { Button } from "../../parts/button";
import { Show } from "../../parts/show";
import { Empty } from "../../parts/state";
import { openFork, openTake } from "./actions";
import { openCompare } from "./compare";
import { canRestore, SnapshotTable } from "./table";

/** How often the list is read again: other clients take and delete snapshots, and lifetimes end. */
const POLL_MS = 10_000;

/** The tab. */
export function Snapshots({ of }: { of: Sandbox }): JSX.Element {
  const all = useLoaded<Snapshot[]>(
    async () => (await api().listSnapshots(of.id)).sort((one, other) => other.createdAt.getTime() - one.createdAt.getTime()),
    [of.id],
    { everyMs: POLL_MS, on: ({ kind, sandbox }) => sandbox === of.id && (kind === "restored" || kind.startsWith("snapshot_")) },
  );
  return (
    <Show of={all} rows={3}>
      {(found) => (
        <>
          <div class="subbar">
            <span class="dim">{plural(found.length, "snapshot")}</span>
            <Button disabled={found.length < 2} onClick={() => openCompare(found)}>
              Compare
            </Button>
            <Button icon="plus" changes disabled={!canRestore(of)} onClick={() => openFork(of.id)}>
              Fork
            </Button>
            <Button icon="plus" changes disabled={!canRestore(of)} onClick={() => openTake(of.id, all.again)}>
              Take snapshot
            </Button>
          </div>
          {found.length === 0 ? (
            <Empty icon="box" title="No snapshots yet">
              <p>A snapshot holds the files of the sandbox and the state of its shells. Processes are not part of it.</p>
            </Empty>
          ) : (
            <SnapshotTable label={`Snapshots of ${of.id}`} all={found} of={of} again={all.again} />
          )}
        </>
      )}
    </Show>
  );
}
