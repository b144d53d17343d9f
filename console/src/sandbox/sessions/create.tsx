/** Dialog for a new session. */

import { useState } from "preact/hooks";
import { api, at } from "../../lib/api";
import { notifySuccess } from "../../lib/notice";
import { words } from "../../lib/parse";
import { readSessions } from "../../lib/sandboxes";
import { closeDialog, Dialog, Form, openDialog } from "../../parts/dialog";
import { Field } from "../../parts/field";

/** Open the dialog for a new session. */
export function openSession(sandbox: string): void {
  openDialog(() => {
    const [id, setId] = useState("");
    const [cwd, setCwd] = useState("");
    const [read, setRead] = useState("");
    const [write, setWrite] = useState("");
    const send = async (): Promise<void> => {
      const json: Record<string, unknown> = {};
      if (id.trim()) json["id"] = id.trim();
      if (cwd.trim()) json["cwd"] = cwd.trim();
      if (read.trim() || write.trim()) json["file_access"] = { read: words(read), write: words(write) };
      const made = await api().json<{ id: string }>(at(sandbox, "sessions"), { json });
      await readSessions(sandbox);
      closeDialog();
      notifySuccess(`session ${made.id} was created`);
    };
    return (
      <Dialog title={`New session in ${sandbox}`}>
        <Form act="Create" run={send}>
          <Field label="Id" value={id} set={setId} placeholder="generated if empty" mono first />
          <Field label="Working directory" value={cwd} set={setCwd} placeholder="/workspace" mono />
          <div class="fields">
            <Field label="Read access" value={read} set={setRead} placeholder="the whole workspace" mono />
            <Field label="Write access" value={write} set={setWrite} placeholder="the whole workspace" mono />
          </div>
          <p class="note">
            Paths relative to /workspace, separated by spaces. If any are given, the session can access only these
            parts of the workspace.
          </p>
        </Form>
      </Dialog>
    );
  });
}
