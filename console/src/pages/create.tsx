/** Dialogs for a new sandbox and a new session. */

import { IsoletError } from "@isolet/sdk";
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { api, at, type Sandbox } from "../lib/api";
import { notifySuccess } from "../lib/notice";
import { go } from "../lib/route";
import { updateSandbox, readSessions } from "../lib/sandboxes";
import { closeDialog, Dialog, Field, Form, openDialog } from "../parts/dialog";

const UNITS: Record<string, number> = { s: 1, m: 60, min: 60, h: 3600, d: 86_400 };

/**
 * Convert `90`, `10m` or `2h` to seconds.
 *
 * @throws {@link IsoletError} with a message for the form.
 */
function seconds(name: string, text: string): number | undefined {
  if (text.trim() === "") return undefined;
  const match = /^(\d+)\s*(s|m|min|h|d)?$/.exec(text.trim());
  if (!match) throw new IsoletError(0, "bad_field", `${name}: ${JSON.stringify(text)} is not a duration`, "use a value such as 90s, 10m, 2h or 1d");
  return Number(match[1]) * UNITS[match[2] ?? "s"]!;
}

function count(name: string, text: string): number | undefined {
  if (text.trim() === "") return undefined;
  if (!/^\d+$/.test(text.trim())) {
    throw new IsoletError(0, "bad_field", `${name}: ${JSON.stringify(text)} is not a whole number`, "use digits only");
  }
  return Number(text.trim());
}

function Create(): JSX.Element {
  const [fields, setFields] = useState({ id: "", image: "", memory: "", cpu: "", disk: "", ttl: "", sleep: "" });
  const [persistent, setPersistent] = useState(true);
  const set = (name: keyof typeof fields) => (value: string) => setFields({ ...fields, [name]: value });
  const send = async (tab: "sessions" | "terminal"): Promise<void> => {
    const all = {
      id: fields.id.trim() || undefined,
      image: fields.image.trim() || undefined,
      memory_mib: count("memory", fields.memory),
      cpu_millis: count("cpu", fields.cpu),
      disk_mib: count("disk", fields.disk),
      ttl_s: seconds("lifetime", fields.ttl),
      sleep_after_s: seconds("sleep after", fields.sleep),
      persistent: persistent ? undefined : false,
    };
    const json = Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined));
    const made = await api().json<Sandbox>("/v1/sandboxes", { json });
    updateSandbox(made);
    closeDialog();
    notifySuccess(`${made.id} was created in ${made.create_ms.toFixed(0)} ms`);
    go("sandboxes", made.id, tab);
  };
  return (
    <Dialog title="New sandbox">
      <Form
        act="Create and open a terminal"
        run={() => send("terminal")}
        more={{ act: "Create", run: () => send("sessions") }}
      >
        <Field label="Id" value={fields.id} set={set("id")} placeholder="generated if empty" mono first />
        <div class="fields">
          <Field label="Image" value={fields.image} set={set("image")} placeholder="host" mono />
          <Field label="Sleep after" value={fields.sleep} set={set("sleep")} placeholder="10m; 0 = never" mono />
          <Field label="Memory" value={fields.memory} set={set("memory")} placeholder="server default" unit="MiB" numeric mono />
          <Field label="CPU" value={fields.cpu} set={set("cpu")} placeholder="server default" unit="1/1000 core" numeric mono />
          <Field label="Disk" value={fields.disk} set={set("disk")} placeholder="server default" unit="MiB" numeric mono />
          <Field label="Lifetime" value={fields.ttl} set={set("ttl")} placeholder="unlimited" mono />
        </div>
        <label class="check">
          <input type="checkbox" checked={persistent} onChange={(event) => setPersistent(event.currentTarget.checked)} />
          <span>Preserve files during sleep</span>
        </label>
      </Form>
    </Dialog>
  );
}

/** Open the dialog for a new sandbox. */
export function openCreate(): void {
  openDialog(Create);
}

/** Open the dialog for a new session. */
export function openSession(sandbox: string): void {
  openDialog(() => {
    const [id, setId] = useState("");
    const [cwd, setCwd] = useState("");
    const [read, setRead] = useState("");
    const [write, setWrite] = useState("");
    const paths = (text: string): string[] => text.split(/\s+/).filter((one) => one !== "");
    const send = async (): Promise<void> => {
      const json: Record<string, unknown> = {};
      if (id.trim()) json["id"] = id.trim();
      if (cwd.trim()) json["cwd"] = cwd.trim();
      if (read.trim() || write.trim()) json["file_access"] = { read: paths(read), write: paths(write) };
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
