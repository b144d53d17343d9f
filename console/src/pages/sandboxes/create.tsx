/** Dialog for a new sandbox. */

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { readOnly } from "../../lib/access";
import { api, type Sandbox } from "../../lib/api";
import { notifySuccess } from "../../lib/notice";
import { count, defined, seconds, variables } from "../../lib/parse";
import { go } from "../../lib/route";
import { updateSandbox } from "../../lib/sandboxes";
import { Button } from "../../parts/button";
import { closeDialog, Dialog, Form, openDialog } from "../../parts/dialog";
import { Area, Check, Field } from "../../parts/field";
import { CredentialFields, credentialFields, NetworkFields, networkFields, NO_CHOICE, NO_CREDENTIAL, type CredentialChoice } from "../../sandbox/network/fields";

/** Limit on credentials in the dialog; more can be added on the network tab. */
const CREDENTIALS_MAX = 8;

function Create({ image = "" }: { image?: string }): JSX.Element {
  const [fields, setFields] = useState({ id: "", image, memory: "", cpu: "", disk: "", ttl: "", sleep: "", env: "" });
  const [persistent, setPersistent] = useState(true);
  const [network, setNetwork] = useState(NO_CHOICE);
  const [credentials, setCredentials] = useState<CredentialChoice[]>([]);
  const set = (name: keyof typeof fields) => (value: string) => setFields({ ...fields, [name]: value });
  const send = async (tab: "sessions" | "terminal"): Promise<void> => {
    const json = defined({
      id: fields.id.trim() || undefined,
      image: fields.image.trim() || undefined,
      memory_mib: count("memory", fields.memory),
      cpu_millis: count("cpu", fields.cpu),
      disk_mib: count("disk", fields.disk),
      ttl_s: seconds("lifetime", fields.ttl),
      sleep_after_s: seconds("sleep after", fields.sleep),
      persistent: persistent ? undefined : false,
      env: variables(fields.env),
      credentials: credentials.length > 0 ? credentials.map(credentialFields) : undefined,
      ...networkFields(network),
    });
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
        <Check value={persistent} set={setPersistent}>
          Preserve files during sleep
        </Check>
        <details class="more-fields">
          <summary>Network, environment and credentials</summary>
          <NetworkFields value={network} set={setNetwork} standard />
          <Area label="Environment" value={fields.env} set={set("env")} placeholder={"NAME=value\nOTHER=value"} note="One variable per line. Programs in the sandbox can read them: put secrets into credentials." />
          {credentials.map((one, i) => (
            <CredentialFields
              key={i}
              value={one}
              set={(now) => setCredentials(credentials.map((old, at) => (at === i ? now : old)))}
              remove={() => setCredentials(credentials.filter((_, at) => at !== i))}
            />
          ))}
          {credentials.length < CREDENTIALS_MAX && (
            <Button icon="plus" onClick={() => setCredentials([...credentials, NO_CREDENTIAL])}>
              Add credential
            </Button>
          )}
        </details>
      </Form>
    </Dialog>
  );
}

/** Open the dialog, if the key may create sandboxes. */
export function openCreate(): void {
  if (!readOnly.peek()) openDialog(() => <Create />);
}

/** Open the dialog with an image. */
export function openCreateFrom(image: string): void {
  openDialog(() => <Create image={image} />);
}
