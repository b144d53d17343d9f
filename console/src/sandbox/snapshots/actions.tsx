/** Actions on snapshots, and their dialogs. */

import type { Snapshot } from "@isolet/sdk";
import { IsoletError } from "@isolet/sdk";
import { useState } from "preact/hooks";
import { api, at, type Sandbox } from "../../lib/api";
import { plural, visibleName } from "../../lib/format";
import { notifySuccess } from "../../lib/notice";
import { go } from "../../lib/route";
import { updateSandbox } from "../../lib/sandboxes";
import { closeDialog, confirm, Dialog, Form, openDialog } from "../../parts/dialog";
import { Field } from "../../parts/field";

/** Largest number of copies of one fork. */
const FORKS_MAX = 100;

/** Dialog that takes a snapshot. */
export function openTake(sandbox: string, read: () => Promise<void>): void {
  openDialog(() => {
    const [name, setName] = useState("");
    const take = async (): Promise<void> => {
      const json = name.trim() ? { name: name.trim() } : {};
      const taken = await api().json<{ frozen_ms: number }>(at(sandbox, "snapshots"), { json });
      await read();
      closeDialog();
      notifySuccess(`snapshot taken; processes were frozen for ${taken.frozen_ms.toFixed(0)} ms`);
    };
    return (
      <Dialog title={`Snapshot of ${sandbox}`}>
        <Form act="Take" run={take}>
          <Field label="Name" value={name} set={setName} placeholder="none" mono first />
          <p class="note">Processes, terminals and credentials are not part of it. Files such as .netrc are.</p>
        </Form>
      </Dialog>
    );
  });
}

/** Dialog for a new sandbox with the files of a snapshot. */
export function openFrom(of: Snapshot): void {
  openDialog(() => {
    const [id, setId] = useState("");
    const create = async (): Promise<void> => {
      const json = { snapshot: of.id, ...(id.trim() ? { id: id.trim() } : {}) };
      const made = await api().json<Sandbox>("/v1/sandboxes", { json });
      updateSandbox(made);
      closeDialog();
      notifySuccess(`${made.id} was created`);
      go("sandboxes", made.id, "sessions");
    };
    return (
      <Dialog title={`New sandbox from ${visibleName(of.name ?? of.id)}`}>
        <Form act="Create" run={create}>
          <Field label="Id" value={id} set={setId} placeholder="generated if empty" mono first />
        </Form>
      </Dialog>
    );
  });
}

/** Dialog that copies a sandbox. */
export function openFork(sandbox: string): void {
  openDialog(() => {
    const [count, setCount] = useState("1");
    const good = /^\d+$/.test(count.trim()) && Number(count) >= 1 && Number(count) <= FORKS_MAX;
    const fork = async (): Promise<void> => {
      const json = { count: Number(count) };
      const { forks } = await api().json<{ forks: Sandbox[] }>(at(sandbox, "fork"), { json });
      forks.forEach(updateSandbox);
      closeDialog();
      notifySuccess(`${plural(forks.length, "copy", "copies")} of ${sandbox} created`);
      if (forks.length === 1) go("sandboxes", forks[0]!.id, "sessions");
      else go("sandboxes");
    };
    return (
      <Dialog title={`Fork ${sandbox}`}>
        <Form act="Fork" ready={good} run={fork}>
          <Field label="Copies" value={count} set={setCount} placeholder={`1 to ${FORKS_MAX}`} numeric mono first />
          <p class="note">Each copy has the files, the state of the shells and the settings, and no processes.</p>
        </Form>
      </Dialog>
    );
  });
}

/** Ask, then replace the files of a sandbox by those of a snapshot. */
export function restore(sandbox: string, of: Snapshot): void {
  const name = visibleName(of.name ?? of.id);
  confirm({
    title: "Restore snapshot",
    label: `This ends everything that runs in ${sandbox}, and replaces its files by those of ${name}. Changes since then are lost.`,
    act: "Restore",
    run: async () => {
      const json = { snapshot: of.id };
      const now = await api().json<Sandbox & { lost: string[] }>(at(sandbox, "restore"), { json });
      updateSandbox(now);
      const ended = now.lost.length ? `; ended or missing: ${now.lost.join(", ").replaceAll("_", " ")}` : "";
      notifySuccess(`${sandbox} was restored${ended}`);
    },
  });
}

/** Ask, then delete a snapshot. */
export function remove(of: Snapshot, read: () => Promise<void>): void {
  confirm({
    title: "Delete snapshot",
    label: `This deletes ${visibleName(of.name ?? of.id)}. Sandboxes that were created from it keep their files.`,
    act: "Delete",
    run: async () => {
      try {
        await api().deleteSnapshot(of.id);
      } catch (error) {
        if (!(error instanceof IsoletError && error.status === 404)) throw error;
      }
      await read();
      notifySuccess("the snapshot was deleted");
    },
  });
}
