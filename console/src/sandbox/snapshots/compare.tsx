/** Dialog that chooses two snapshots to compare. */

import type { Snapshot } from "@isolet/sdk";
import { useState } from "preact/hooks";
import { moment, visibleName } from "../../lib/format";
import { go } from "../../lib/route";
import { closeDialog, Dialog, Form, openDialog } from "../../parts/dialog";
import { Select } from "../../parts/field";

/** Open the dialog. `all` has at least two snapshots, the latest first. */
export function openCompare(all: readonly Snapshot[]): void {
  openDialog(() => {
    const options = all.map((one) => [one.id, `${visibleName(one.name ?? one.id)} (${one.sandboxId}, ${moment(one.createdAt.getTime())})`] as const);
    const [from, setFrom] = useState(all[1]!.id);
    const [to, setTo] = useState(all[0]!.id);
    return (
      <Dialog title="Compare snapshots">
        <Form
          act="Compare"
          ready={from !== to}
          run={async () => {
            closeDialog();
            go("snapshots", "compare", from, to);
          }}
        >
          <Select label="Before" value={from} set={setFrom} options={options} first />
          <Select label="After" value={to} set={setTo} options={options} />
        </Form>
      </Dialog>
    );
  });
}
