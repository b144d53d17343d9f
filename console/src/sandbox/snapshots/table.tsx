/** Table of snapshots: those of one sandbox, or all. */

import type { Snapshot } from "@isolet/sdk";
import type { JSX } from "preact";
import type { Sandbox } from "../../lib/api";
import { now } from "../../lib/clock";
import { bytes, plural, roughDuration, visibleName } from "../../lib/format";
import { link } from "../../lib/route";
import { Button } from "../../parts/button";
import { ACTIONS, Table } from "../../parts/table";
import { openFrom, remove, restore } from "./actions";
import { openImage } from "./image";

/** The table. With `of`, the snapshots are those of a sandbox, and can be restored in it. */
export function SnapshotTable(props: { label: string; all: readonly Snapshot[]; of?: Sandbox; again: () => Promise<void> }): JSX.Element {
  const { of } = props;
  return (
    <Table
      kind="snapshots"
      label={props.label}
      columns={[{ name: "Snapshot" }, ...(of ? [] : [{ name: "Sandbox" }]), { name: "Size", number: true }, { name: "Taken", number: true }, ACTIONS]}
    >
      {props.all.map((one) => (
        <Row key={one.id} of={one} sandbox={of} again={props.again} />
      ))}
    </Table>
  );
}

/** Whether the files of a sandbox can be replaced in its state. */
export const canRestore = ({ state }: Sandbox): boolean => state === "running" || state === "paused" || state === "sleeping";

function Row({ of, sandbox, again }: { of: Snapshot; sandbox: Sandbox | undefined; again: () => Promise<void> }): JSX.Element {
  const name = visibleName(of.name ?? of.id);
  return (
    <tr class="row" data-snapshot={of.name ?? of.id}>
      <th scope="row">
        <span class="mono" title={of.id}>
          {name}
        </span>
        {of.lost.length > 0 && (
          <span class="chip" title={`Not part of it: ${of.lost.join(", ").replaceAll("_", " ")}`}>
            {plural(of.lost.length, "part")} missing
          </span>
        )}
      </th>
      {!sandbox && (
        <td class="mono cell-sandbox">
          <a class="to" href={link("sandboxes", of.sandboxId)}>
            {visibleName(of.sandboxId)}
          </a>
        </td>
      )}
      <td class="number">{bytes(of.sizeBytes)}</td>
      <td class="number cell-age" title={of.createdAt.toISOString()}>
        {roughDuration(now.value - of.createdAt.getTime())}
      </td>
      <td class="acts">
        <Button kind="plain" changes hint={`New sandbox from ${name}`} onClick={() => openFrom(of)}>
          New sandbox
        </Button>
        <Button kind="quiet" changes hint={`Make an image from ${name}`} onClick={() => openImage(of)}>
          Image
        </Button>
        {sandbox && (
          <Button kind="quiet" changes hint={`Restore ${name}`} disabled={!canRestore(sandbox)} onClick={() => restore(sandbox.id, of)}>
            Restore
          </Button>
        )}
        <Button icon="trash" kind="quiet" changes label={`Delete snapshot ${name}`} onClick={() => remove(of, again)} />
      </td>
    </tr>
  );
}
