/** Dialog for a new background process. */

import { useState } from "preact/hooks";
import { api, at } from "../../lib/api";
import { notifySuccess } from "../../lib/notice";
import { defined, seconds, variables } from "../../lib/parse";
import { go } from "../../lib/route";
import { closeDialog, Dialog, Form, openDialog } from "../../parts/dialog";
import { Area, Check, Field } from "../../parts/field";
import type { ProcessInfo } from "./api";

/** Open the dialog. */
export function openStart(sandbox: string, done: () => Promise<void>): void {
  openDialog(() => {
    const [fields, setFields] = useState({ command: "", id: "", session: "", cwd: "", timeout: "", env: "" });
    const [stdin, setStdin] = useState(false);
    const set = (name: keyof typeof fields) => (value: string) => setFields({ ...fields, [name]: value });
    const start = async (): Promise<void> => {
      const limit = seconds("time limit", fields.timeout);
      const json = defined({
        command: fields.command,
        id: fields.id.trim() || undefined,
        session: fields.session.trim() || undefined,
        cwd: fields.cwd.trim() || undefined,
        timeout_ms: limit === undefined ? undefined : limit * 1000,
        env: variables(fields.env),
        stdin: stdin || undefined,
      });
      const made = await api().json<ProcessInfo>(at(sandbox, "processes"), { json });
      await done();
      closeDialog();
      notifySuccess(`${made.id} was started`);
      go("sandboxes", sandbox, "processes", made.id);
    };
    return (
      <Dialog title={`Start a process in ${sandbox}`}>
        <Form act="Start" ready={fields.command.trim() !== ""} run={start}>
          <Area label="Command" value={fields.command} set={set("command")} placeholder="npm run dev" rows={2} first />
          <div class="fields">
            <Field label="Id" value={fields.id} set={set("id")} placeholder="generated if empty" mono />
            <Field label="Session" value={fields.session} set={set("session")} placeholder="none" mono />
            <Field label="Working directory" value={fields.cwd} set={set("cwd")} placeholder="/workspace" mono />
            <Field label="Time limit" value={fields.timeout} set={set("timeout")} placeholder="none" mono />
          </div>
          <Area label="Environment" value={fields.env} set={set("env")} placeholder="NAME=value" rows={2} />
          <Check value={stdin} set={setStdin}>
            Leave standard input open
          </Check>
        </Form>
      </Dialog>
    );
  });
}
