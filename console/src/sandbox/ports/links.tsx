/** Signed links to the ports of a sandbox. */

import { useState } from "preact/hooks";
import { api, at } from "../../lib/api";
import { moment } from "../../lib/format";
import { attempt, notifySuccess } from "../../lib/notice";
import { count, defined, seconds } from "../../lib/parse";
import { Button } from "../../parts/button";
import { closeDialog, confirm, Dialog, Form, openDialog } from "../../parts/dialog";
import { Copy } from "../../parts/copy";
import { Field } from "../../parts/field";
import { openExternalLink } from "../../terminal/opened";

interface Link {
  url: string;
  port: number;
  expires_at: string;
}

const create = (sandbox: string, json: Record<string, unknown>): Promise<Link> => api().json<Link>(at(sandbox, "links"), { json });

/** Open a port in a new browser tab, through a new link. */
export async function openPort(sandbox: string, port: number, done: () => Promise<void>): Promise<void> {
  const link = await attempt(`Could not open port ${port}`, () => create(sandbox, { port }));
  if (!link) return;
  openExternalLink(link.url);
  await done();
}

/** Dialog for a new link, which then shows it. */
export function openLink(sandbox: string, port: number | undefined, done: () => Promise<void>): void {
  openDialog(() => {
    const [fields, setFields] = useState({ port: port === undefined ? "" : String(port), name: "", ttl: "1h" });
    const [made, setMade] = useState<Link>();
    const set = (name: keyof typeof fields) => (value: string) => setFields({ ...fields, [name]: value });
    const send = async (): Promise<void> => {
      const json = defined({ port: count("port", fields.port), name: fields.name.trim() || undefined, ttl_s: seconds("lifetime", fields.ttl) });
      setMade(await create(sandbox, json));
      await done();
    };
    if (made) {
      return (
        <Dialog title={`Link to port ${made.port}`}>
          <div class="form">
            <p>Everyone who has this link can use the port until {moment(Date.parse(made.expires_at))}. It is not shown again.</p>
            <Copy text={made.url} label="Copy the link" />
            <footer>
              <Button onClick={closeDialog}>Close</Button>
              <Button kind="main" onClick={() => openExternalLink(made.url)}>
                Open
              </Button>
            </footer>
          </div>
        </Dialog>
      );
    }
    return (
      <Dialog title={`Create a link into ${sandbox}`}>
        <Form act="Create" ready={fields.port.trim() !== ""} run={send}>
          <div class="fields">
            <Field label="Port" value={fields.port} set={set("port")} placeholder="8080" numeric mono {...(port === undefined ? { first: true } : {})} />
            <Field label="Lifetime" value={fields.ttl} set={set("ttl")} placeholder="1h" mono {...(port === undefined ? {} : { first: true })} />
          </div>
          <Field label="Name" value={fields.name} set={set("name")} placeholder="none" note="The link ends sooner if its port's links are revoked, its key is revoked or the sandbox is destroyed." />
        </Form>
      </Dialog>
    );
  });
}

/** Ask, then revoke all links to a port. */
export function revoke(sandbox: string, port: number, done: () => Promise<void>): void {
  confirm({
    title: "Revoke links",
    label: `All links to port ${port} become invalid at once, also those that others created.`,
    act: "Revoke",
    run: async () => {
      await api().send(at(sandbox, "links", String(port)), { method: "DELETE" });
      await done();
      notifySuccess(`all links to port ${port} were revoked`);
    },
  });
}
