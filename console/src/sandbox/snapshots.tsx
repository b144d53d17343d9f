/** Tab with the snapshots of a sandbox: take, restore, delete, and sandboxes from them; and forks. */

import type { Snapshot } from "@isolet/sdk";
import { IsoletError } from "@isolet/sdk";
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { api, at, type Sandbox } from "../lib/api";
import { now } from "../lib/clock";
import { onEvent, onReloadNeeded } from "../lib/events";
import { bytes, plural, roughDuration, visibleName } from "../lib/format";
import { attempt, notifySuccess } from "../lib/notice";
import { go } from "../lib/route";
import { updateSandbox } from "../lib/sandboxes";
import { Button } from "../parts/button";
import { closeDialog, confirm, Dialog, Field, Form, openDialog } from "../parts/dialog";
import { Empty, Loading } from "../parts/state";

/** Largest number of copies of one fork. */
const FORKS_MAX = 100;
/** How often the list is read again: other clients take and delete snapshots, and lifetimes end. */
const POLL_MS = 10_000;

/** The tab. */
export function Snapshots({ of }: { of: Sandbox }): JSX.Element {
  const { all, read } = useSnapshots(of.id);
  const works = of.state === "running" || of.state === "paused" || of.state === "sleeping";
  if (!all) return <Loading rows={3} />;
  return (
    <>
      <div class="subbar">
        <span class="dim">{plural(all.length, "snapshot")}</span>
        <Button icon="plus" disabled={!works} onClick={() => openFork(of.id)}>
          Fork
        </Button>
        <Button icon="plus" disabled={!works} onClick={() => openTake(of.id, read)}>
          Take snapshot
        </Button>
      </div>
      {all.length === 0 ? (
        <Empty icon="box" title="No snapshots yet">
          <p>A snapshot holds the files of the sandbox and the state of its shells. Processes are not part of it.</p>
        </Empty>
      ) : (
        <table class="list snapshots" aria-label={`Snapshots of ${of.id}`}>
          <thead>
            <tr>
              <th scope="col">Snapshot</th>
              <th scope="col" class="number">
                Size
              </th>
              <th scope="col" class="number">
                Taken
              </th>
              <th scope="col">
                <span class="unseen">Actions</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {all.map((one) => (
              <Row key={one.id} sandbox={of.id} of={one} works={works} read={read} />
            ))}
          </tbody>
        </table>
      )}
    </>
  );
}

function useSnapshots(id: string): { all: Snapshot[] | undefined; read: () => Promise<void> } {
  const [all, setAll] = useState<Snapshot[]>();
  const read = async (): Promise<void> => {
    const found = await attempt("Could not list the snapshots", () => api().listSnapshots(id));
    if (found) setAll(found.sort((one, other) => other.createdAt.getTime() - one.createdAt.getTime()));
  };
  useEffect(() => {
    void read();
    const timer = setInterval(() => document.hidden || void read(), POLL_MS);
    const leave = [onReloadNeeded(() => void read()), onEvent(({ kind, sandbox }) => sandbox === id && kind === "restored" && void read())];
    return () => {
      clearInterval(timer);
      leave.forEach((end) => end());
    };
  }, [id]);
  return { all, read };
}

function Row(props: { sandbox: string; of: Snapshot; works: boolean; read: () => Promise<void> }): JSX.Element {
  const { sandbox, of, works, read } = props;
  const name = visibleName(of.name ?? of.id);
  return (
    <tr class="row" data-snapshot={of.name ?? of.id}>
      <th scope="row">
        <span class="mono" title={of.id}>
          {name}
        </span>
        {of.lost.length > 0 && (
          <span class="chip" title={`Not part of it: ${of.lost.join(", ").replaceAll("_", " ")}`}>
            {plural(of.lost.length, "part")} missing
          </span>
        )}
      </th>
      <td class="number">{bytes(of.sizeBytes)}</td>
      <td class="number cell-age" title={of.createdAt.toISOString()}>
        {roughDuration(now.value - of.createdAt.getTime())}
      </td>
      <td class="acts">
        <Button kind="plain" label={`New sandbox from ${name}`} onClick={() => openFrom(of)}>
          New sandbox
        </Button>
        <Button kind="quiet" label={`Restore ${name}`} disabled={!works} onClick={() => restore(sandbox, of)}>
          Restore
        </Button>
        <Button icon="trash" kind="quiet" label={`Delete snapshot ${name}`} onClick={() => remove(of, read)} />
      </td>
    </tr>
  );
}

function openTake(sandbox: string, read: () => Promise<void>): void {
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

function openFrom(of: Snapshot): void {
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

function openFork(sandbox: string): void {
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

function restore(sandbox: string, of: Snapshot): void {
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

function remove(of: Snapshot, read: () => Promise<void>): void {
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
