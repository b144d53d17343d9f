/** Names of images: those that the tenant gives and removes, and those that the operator has configured. */

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { api } from "../../lib/api";
import { visibleName } from "../../lib/format";
import type { Loaded } from "../../lib/load";
import { notifySuccess } from "../../lib/notice";
import { Button } from "../../parts/button";
import { closeDialog, confirm, Dialog, Form, openDialog } from "../../parts/dialog";
import { Field } from "../../parts/field";
import { Show } from "../../parts/show";
import { ACTIONS, Table } from "../../parts/table";
import { openCreateFrom } from "../sandboxes/create";

/** A name that the operator has configured, and the image that it stands for. */
export interface Alias {
  name: string;
  image: string;
}

/** Path of an image: the slashes of its name stay. */
const path = (name: string): string => `/v1/images/${name.split("/").map(encodeURIComponent).join("/")}`;

/** The names of an image, each with a button that removes it, and the configured names that stand for it. */
export function Names({ names, aliases, again }: { names: string[]; aliases: Alias[]; again: () => Promise<void> }): JSX.Element {
  return (
    <ul class="names">
      {names.map((name) => (
        <li key={name}>
          <span class="mono" title={name}>
            {visibleName(name)}
          </span>
          <Button icon="close" kind="quiet" changes label={`Remove the name ${visibleName(name)}`} onClick={() => remove(name, names.length === 1, again)} />
        </li>
      ))}
      {aliases.map(({ name }) => (
        <li key={`alias ${name}`}>
          <span class="mono" title={name}>
            {visibleName(name)}
          </span>
          <small class="chip" title="The operator of this server has configured this name">
            configured
          </small>
        </li>
      ))}
    </ul>
  );
}

/** All configured names. */
export function Aliases({ of }: { of: Loaded<Alias[]> }): JSX.Element {
  return (
    <section class="below" aria-labelledby="aliases">
      <h2 id="aliases">Configured names</h2>
      <p class="note">The operator of this server decides what these names stand for. They are used like those of images, and cannot be changed here.</p>
      <Show of={of} rows={2}>
        {(all) =>
          all.length === 0 ? (
            <p class="dim">No names are configured.</p>
          ) : (
            <Table kind="aliases" label="Configured names" columns={[{ name: "Name" }, { name: "Stands for" }, ACTIONS]}>
              {all.map(({ name, image }) => (
                <tr key={name} class="row" data-alias={name}>
                  <th scope="row">
                    <span class="mono" title={name}>
                      {visibleName(name)}
                    </span>
                  </th>
                  <td class="stands">
                    <span class="mono" title={image}>
                      {visibleName(image)}
                    </span>
                    {image === "host" && <span class="dim"> the programs of the server</span>}
                  </td>
                  <td class="acts">
                    <Button changes onClick={() => openCreateFrom(name)} hint={`New sandbox from ${name}`}>
                      New sandbox
                    </Button>
                  </td>
                </tr>
              ))}
            </Table>
          )
        }
      </Show>
    </section>
  );
}

/** Ask for another name of an image, and give it. */
export function openTag(image: string, again: () => Promise<void>): void {
  openDialog(() => {
    const [name, setName] = useState("");
    return (
      <Dialog title="Add a name">
        <Form
          act="Add name"
          ready={name.trim() !== ""}
          run={async () => {
            const tagged = await api().json<{ name: string }>("/v1/images/tag", { json: { image, name: name.trim() } });
            await again();
            closeDialog();
            notifySuccess(`${visibleName(tagged.name)} was added`);
          }}
        >
          <p>
            The image <code>{visibleName(image)}</code> keeps its names, and gets one more.
          </p>
          <Field label="New name" value={name} set={setName} placeholder="tools:1" mono first note="Another image of yours that has this name loses it." />
        </Form>
      </Dialog>
    );
  });
}

function remove(name: string, last: boolean, again: () => Promise<void>): void {
  confirm({
    title: last ? "Remove image" : "Remove name",
    label: last ? `${visibleName(name)} is the last name of the image: its files are deleted.` : `The image keeps its other names, and loses ${visibleName(name)}.`,
    act: "Remove",
    run: async () => {
      await api().send(path(name), { method: "DELETE" });
      await again();
      notifySuccess(`${visibleName(name)} was removed`);
    },
  });
}
