/** A new sandbox, or a new session of one. */

import { IsoletError } from "@isolet/sdk";
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { api, at, type Sandbox } from "../lib/api";
import { done } from "../lib/notice";
import { go } from "../lib/route";
import { known, readSessions } from "../lib/sandboxes";
import { closeDialog, Dialog, Field, Form, openDialog } from "../parts/dialog";

const UNITS: Record<string, number> = { s: 1, m: 60, min: 60, h: 3600, d: 86_400 };

/** Seconds of `90`, `10m`, `2h`; an error says what is wrong. */
function seconds(name: string, text: string): number | undefined {
  if (text.trim() === "") return undefined;
  const match = /^(\d+)\s*(s|m|min|h|d)?$/.exec(text.trim());
  if (!match) throw new IsoletError(0, "bad_field", `${name}: ${JSON.stringify(text)} is no time`, "write 90s, 10m, 2h or 1d");
  return Number(match[1]) * UNITS[match[2] ?? "s"]!;
}

function count(name: string, text: string): number | undefined {
  if (text.trim() === "") return undefined;
  if (!/^\d+$/.test(text.trim())) {
    throw new IsoletError(0, "bad_field", `${name}: ${JSON.stringify(text)} is no whole number`, "write digits alone");
  }
  return Number(text.trim());
}

function Create(): JSX.Element {
  const [wish, setWish] = useState({ id: "", image: "", memory: "", cpu: "", disk: "", ttl: "", sleep: "" });
  const [persistent, setPersistent] = useState(true);
  const set = (name: keyof typeof wish) => (value: string) => setWish({ ...wish, [name]: value });
  const send = async (tab: "sessions" | "terminal"): Promise<void> => {
    const all = {
      id: wish.id.trim() || undefined,
      image: wish.image.trim() || undefined,
      memory_mib: count("memory", wish.memory),
      cpu_millis: count("cpu", wish.cpu),
      disk_mib: count("disk", wish.disk),
      ttl_s: seconds("ends after", wish.ttl),
      sleep_after_s: seconds("sleeps after", wish.sleep),
      persistent: persistent ? undefined : false,
    };
    const json = Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined));
    const made = await api().json<Sandbox>("/v1/sandboxes", { json });
    known(made);
    closeDialog();
    done(`${made.id} runs, made in ${made.create_ms.toFixed(0)} ms`);
    go("sandboxes", made.id, tab);
  };
  return (
    <Dialog title="New sandbox">
      <Form
        act="Create and open a terminal"
        run={() => send("terminal")}
        more={{ act: "Create", run: () => send("sessions") }}
      >
        <Field label="Id" value={wish.id} set={set("id")} placeholder="left empty, the server makes one" mono first />
        <div class="fields">
          <Field label="Image" value={wish.image} set={set("image")} placeholder="host" mono />
          <Field label="Sleeps after" value={wish.sleep} set={set("sleep")} placeholder="10m; 0 never" mono />
          <Field label="Memory" value={wish.memory} set={set("memory")} placeholder="as configured" unit="MiB" numeric mono />
          <Field label="CPU" value={wish.cpu} set={set("cpu")} placeholder="as configured" unit="1/1000 core" numeric mono />
          <Field label="Disk" value={wish.disk} set={set("disk")} placeholder="as configured" unit="MiB" numeric mono />
          <Field label="Ends after" value={wish.ttl} set={set("ttl")} placeholder="never" mono />
        </div>
        <label class="check">
          <input type="checkbox" checked={persistent} onChange={(event) => setPersistent(event.currentTarget.checked)} />
          <span>Files outlive a sleep</span>
        </label>
      </Form>
    </Dialog>
  );
}

/** Asks for a new sandbox. */
export function openCreate(): void {
  openDialog(Create);
}

/** Asks for a new session. */
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
      done(`session ${made.id} is there`);
    };
    return (
      <Dialog title={`New session in ${sandbox}`}>
        <Form act="Create" run={send}>
          <Field label="Id" value={id} set={setId} placeholder="left empty, the server makes one" mono first />
          <Field label="Begins in" value={cwd} set={setCwd} placeholder="/workspace" mono />
          <div class="fields">
            <Field label="May read" value={read} set={setRead} placeholder="everything" mono />
            <Field label="May write" value={write} set={setWrite} placeholder="everything" mono />
          </div>
          <p class="note">
            Paths below /workspace, with spaces between. With any of them the session sees nothing else of the
            workspace.
          </p>
        </Form>
      </Dialog>
    );
  });
}
