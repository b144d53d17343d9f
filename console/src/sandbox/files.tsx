/** The files of a sandbox: a directory at a time, with what can be done with each entry. */

import { IsoletError } from "@isolet/sdk";
import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import * as actions from "../lib/actions";
import { api, told, type Sandbox } from "../lib/api";
import { hear } from "../lib/events";
import { bytes, many, moment } from "../lib/format";
import { bind, step } from "../lib/keys";
import { done } from "../lib/notice";
import { go, link } from "../lib/route";
import { read as readSandbox } from "../lib/sandboxes";
import { Button } from "../parts/button";
import { ask, confirm } from "../parts/dialog";
import { Icon, type Sign } from "../parts/icon";
import { Empty, Loading, Wrong } from "../parts/state";
import { above, address, below, change, directory, list, ROOT, type Entry } from "./disk";
import { dropped, forget, send, sending } from "./uploads";
import { download, Viewer } from "./viewer";

const SIGNS: Record<Entry["type"], Sign> = { file: "file", directory: "folder", symlink: "link", other: "file" };

interface Listed {
  path: string;
  entries: Entry[];
  next: string | undefined;
}

/** The tab; `path` without one is the workspace. */
export function Files({ sandbox, path: told_path }: { sandbox: Sandbox; path: string }): JSX.Element {
  const { id } = sandbox;
  const path = told_path === "" ? ROOT : told_path === "." ? "/" : `/${told_path}`;
  if (sandbox.state !== "running") {
    return (
      <Empty sign={sandbox.state === "sleeping" ? "sleep" : "folder"} title={`This sandbox is ${sandbox.state}`}>
        {sandbox.state === "sleeping" && (
          <>
            <p>{sandbox.persistent ? "Its files are kept." : "Its files are lost by a sleep."} To look at them it must be awake.</p>
            <Button kind="main" sign="wake" onClick={() => void actions.wake(id).then(() => readSandbox(id))}>
              Wake it
            </Button>
          </>
        )}
      </Empty>
    );
  }
  return <Browser key={path} id={id} path={path} />;
}

function useListing(id: string, path: string, hidden: boolean): { listed: Listed | undefined; wrong: ReturnType<typeof told> | undefined; renew: () => void; more: () => void } {
  const [listed, setListed] = useState<Listed>();
  const [wrong, setWrong] = useState<ReturnType<typeof told>>();
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const ends = new AbortController();
    list(directory(id, path, hidden), ends.signal)
      .then(({ entries, next }) => {
        setListed({ path, entries, next });
        setWrong(undefined);
      })
      .catch((error: unknown) => !ends.signal.aborted && setWrong(told(error)));
    return () => ends.abort();
  }, [id, path, hidden, turn]);
  // What ran may have written here.
  useEffect(() => {
    let due: ReturnType<typeof setTimeout> | undefined;
    const deaf = hear(({ kind, sandbox }) => {
      if (sandbox === id && kind === "command_exited") due ??= setTimeout(() => ((due = undefined), setTurn((n) => n + 1)), 500);
    });
    return () => {
      clearTimeout(due);
      deaf();
    };
  }, [id]);
  const more = (): void => {
    if (!listed?.next) return;
    void list(listed.next, new AbortController().signal).then(({ entries, next }) =>
      setListed({ path, entries: [...listed.entries, ...entries], next }),
    );
  };
  return { listed, wrong, renew: () => setTurn((n) => n + 1), more };
}

function Browser({ id, path }: { id: string; path: string }): JSX.Element {
  const [hidden, setHidden] = useState(false);
  const [wanted, setWanted] = useState("");
  const [over, setOver] = useState(false);
  const [seen, setSeen] = useState<Entry>();
  const picker = useRef<HTMLInputElement>(null);
  const { listed, wrong, renew, more } = useListing(id, path, hidden);
  const shown = useMemo(() => {
    const text = wanted.toLowerCase();
    const first = (one: Entry): number => (one.type === "directory" ? 0 : 1);
    return (listed?.entries ?? [])
      .filter((one) => one.name.toLowerCase().includes(text))
      .sort((a, b) => first(a) - first(b));
  }, [listed, wanted]);
  const visible = useMemo(() => shown.find((one) => one.path === seen?.path) ?? seen, [shown, seen]);
  const put = (files: { name: string; blob: Blob }[]): void => send(id, path, files, renew);
  const mkdir = (): void =>
    ask({
      title: "New folder",
      label: `Name, in ${path}`,
      act: "Make it",
      run: async (name) => {
        await change(id, { op: "mkdir", path: below(path, name) });
        renew();
      },
    });
  useEffect(
    () =>
      bind([
        { group: "Lists", keys: "j", says: "Down (also ↓)", run: () => step(".row .to", 1) },
        { group: "Lists", keys: "k", says: "Up (also ↑)", run: () => step(".row .to", -1) },
        { group: "Lists", keys: "ArrowDown", also: true, says: "Down", run: () => step(".row .to", 1) },
        { group: "Lists", keys: "ArrowUp", also: true, says: "Up", run: () => step(".row .to", -1) },
        { group: "Files", keys: "u", says: "Upload", run: () => picker.current?.click() },
        { group: "Files", keys: "h", says: "Hidden names", run: () => setHidden((was) => !was) },
        { group: "Files", keys: "Backspace", says: "The directory above", run: () => go("sandboxes", id, "files", ...route(above(path))) },
        { group: "Files", keys: "Escape", says: "Close the file", run: () => setSeen(undefined) },
      ]),
    [id, path],
  );
  return (
    <div
      class={`files ${over ? "over-drop" : ""} ${visible ? "viewing" : ""}`}
      onDragOver={(event) => {
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={(event) => event.currentTarget === event.target && setOver(false)}
      onDrop={(event) => {
        event.preventDefault();
        setOver(false);
        if (event.dataTransfer) void dropped(event.dataTransfer).then(put);
      }}
    >
      <div class="subbar">
        <Crumbs id={id} path={path} />
        <label class="filter small">
          <span class="unseen">Filter</span>
          <input id="filter" type="search" placeholder="Filter" value={wanted} onInput={(event) => setWanted(event.currentTarget.value)} onKeyDown={(event) => event.key === "Escape" && (setWanted(""), event.currentTarget.blur())} />
        </label>
        <label class="check small">
          <input type="checkbox" checked={hidden} onChange={(event) => setHidden(event.currentTarget.checked)} />
          <span>Hidden</span>
        </label>
        <Button sign="again" kind="quiet" label="Read it anew" onClick={renew} />
        <Button sign="folder" onClick={mkdir}>
          New folder
        </Button>
        <input
          ref={picker}
          type="file"
          multiple
          hidden
          aria-label="Files to upload"
          onChange={({ currentTarget: input }) => {
            put([...(input.files ?? [])].map((blob) => ({ name: blob.name, blob })));
            input.value = "";
          }}
        />
        <Button sign="up" kind="main" onClick={() => picker.current?.click()} hint="Upload (u), or drop files here">
          Upload
        </Button>
      </div>
      <Uploads id={id} />
      <div class="files-body">
        <div class="files-list">
          {wrong ? (
            <Wrong {...wrong} again={renew} />
          ) : !listed ? (
            <Loading rows={7} />
          ) : shown.length === 0 ? (
            <Empty sign="folder" title={wanted ? `Nothing fits “${wanted}”` : "Nothing is in this directory"}>
              {!wanted && <p>Drop files here, or upload them.{hidden ? "" : " Hidden names are left out."}</p>}
            </Empty>
          ) : (
            <table class="list entries" aria-label={path}>
              <thead>
                <tr>
                  <th scope="col">Name</th>
                  <th scope="col" class="number">
                    Size
                  </th>
                  <th scope="col" class="number">
                    Changed
                  </th>
                  <th scope="col">Mode</th>
                  <th scope="col">
                    <span class="unseen">What can be done</span>
                  </th>
                </tr>
              </thead>
              <tbody>
                {shown.map((one) => (
                  <Row key={one.path_b64 ?? one.path} id={id} of={one} chosen={one.path === visible?.path} look={() => setSeen(one)} renew={renew} />
                ))}
              </tbody>
            </table>
          )}
          {listed?.next && (
            <div class="more">
              <Button onClick={more}>{many(listed.entries.length, "entry", "entries")} are shown. Show more</Button>
            </div>
          )}
        </div>
        {visible && <Viewer sandbox={id} of={visible} leave={() => setSeen(undefined)} />}
      </div>
      {over && (
        <p class="drop" aria-hidden="true">
          Drop to upload into {path}
        </p>
      )}
    </div>
  );
}

const split = (path: string): string[] => path.split("/").filter((part) => part !== "");

/** The root has a name of its own in addresses: no name is the workspace. */
const route = (path: string): string[] => (path === "/" ? ["."] : split(path));

function Crumbs({ id, path }: { id: string; path: string }): JSX.Element {
  const parts = split(path);
  return (
    <nav class="crumbs mono" aria-label="Directory">
      <a href={link("sandboxes", id, "files", ".")} aria-label="The root directory">
        /
      </a>
      {parts.map((part, i) => (
        <span key={i}>
          {i > 0 && <i aria-hidden="true">/</i>}
          <a href={link("sandboxes", id, "files", ...parts.slice(0, i + 1))} aria-current={i === parts.length - 1 ? "page" : undefined}>
            {part}
          </a>
        </span>
      ))}
    </nav>
  );
}

function Row(props: { id: string; of: Entry; chosen: boolean; look: () => void; renew: () => void }): JSX.Element {
  const { id, of, chosen, look, renew } = props;
  const name = (
    <>
      <Icon sign={SIGNS[of.type]} />
      <span>{of.name}</span>
      {of.target !== undefined && <span class="dim"> → {of.target}</span>}
    </>
  );
  const enters = of.type === "directory" && of.path_b64 === undefined;
  return (
    <tr class={`row ${chosen ? "chosen" : ""}`}>
      <th scope="row" class={of.type}>
        {enters ? (
          <a class="to" href={link("sandboxes", id, "files", ...split(of.path))}>
            {name}
          </a>
        ) : (
          <button type="button" class="to" onClick={look} disabled={of.type === "other" || of.type === "directory"}>
            {name}
          </button>
        )}
      </th>
      <td class="number cell-size">{of.type === "directory" ? "" : bytes(of.size)}</td>
      <td class="number dim cell-age">{moment(of.modified_ms)}</td>
      <td class="mono dim cell-mode">{of.mode}</td>
      <td class="acts">
        <Button sign="down" kind="quiet" label={of.type === "directory" ? `Download ${of.name} as an archive` : `Download ${of.name}`} disabled={of.type === "other"} onClick={() => void download(id, of)} />
        <Button sign="edit" kind="quiet" label={`Rename ${of.name}`} onClick={() => rename(id, of, renew)} />
        <Button sign="trash" kind="quiet" label={`Delete ${of.name}`} onClick={() => remove(id, of, renew)} />
      </td>
    </tr>
  );
}

function rename(id: string, of: Entry, renew: () => void): void {
  ask({
    title: "Rename",
    label: "New name",
    value: of.name,
    act: "Rename",
    note: "A name with slashes moves it, from the directory where it is.",
    run: async (name) => {
      const from = of.path_b64 === undefined ? { path: of.path } : { path_b64: of.path_b64 };
      const to = name.startsWith("/") ? name : below(above(of.path), name);
      await change(id, { op: "move", ...from, to, replace: false });
      renew();
    },
  });
}

function remove(id: string, of: Entry, renew: () => void): void {
  const directory = of.type === "directory";
  confirm({
    title: directory ? "Delete folder" : "Delete file",
    says: `${of.path}${directory ? " and all that it holds" : ""} is deleted. This cannot be undone.`,
    act: "Delete",
    run: async () => {
      try {
        await api().send(address(id, of) + (directory ? "?recursive=1" : ""), { method: "DELETE" });
      } catch (error) {
        if (!(error instanceof IsoletError && error.status === 404)) throw error;
      }
      done(`${of.name} is deleted`);
      renew();
    },
  });
}

function Uploads({ id }: { id: string }): JSX.Element | null {
  const all = sending.value.filter((one) => one.sandbox === id);
  if (all.length === 0) return null;
  const shown = all.slice(0, 6);
  return (
    <ul class="uploads" aria-label="Uploads">
      {shown.map((one) => (
        <li key={one.number} class={one.state}>
          <span class="mono">{one.path}</span>
          <progress max={Math.max(one.size, 1)} value={one.state === "done" ? Math.max(one.size, 1) : one.sent} aria-label={`Upload of ${one.path}`} />
          <span class="dim">
            {one.state === "failed" ? one.why : one.state === "done" ? "done" : `${bytes(one.sent)} of ${bytes(one.size)}`}
          </span>
          <Button
            sign="close"
            kind="quiet"
            label={one.state === "runs" ? "Stop" : "Dismiss"}
            onClick={() => {
              one.abort();
              forget(one.number);
            }}
          />
        </li>
      ))}
      {all.length > shown.length && <li class="dim">and {all.length - shown.length} more</li>}
    </ul>
  );
}
