/** Dialog that replaces the network of a sandbox. */

import { useState } from "preact/hooks";
import { notifySuccess } from "../../lib/notice";
import { closeDialog, Dialog, Form, openDialog } from "../../parts/dialog";
import { NetworkFields, networkFields } from "./fields";
import type { Change, Network } from "./tab";

/** Open the dialog. */
export function openReplace(sandbox: string, of: Network, change: Change): void {
  openDialog(() => {
    const [choice, setChoice] = useState({ mode: of.mode as string, allow: of.allow.join("\n"), deny: of.deny.join("\n") });
    const send = async (): Promise<void> => {
      await change(networkFields(choice));
      closeDialog();
      notifySuccess("the network was changed");
    };
    return (
      <Dialog title={`Network of ${sandbox}`}>
        <Form act="Change" run={send}>
          <NetworkFields value={choice} set={setChoice} />
          <p class="note">The change takes effect at once: open connections that it denies are closed.</p>
        </Form>
      </Dialog>
    );
  });
}
