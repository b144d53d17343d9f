/** The files of a sandbox: a directory at a time, with what can be done with each entry. */

import { signal } from "@preact/signals";
import type { JSX, RefObject } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import * as actions from "../lib/actions";
import { told, type Sandbox } from "../lib/api";
import { hear } from "../lib/events";
import { bytes, many, written } from "../lib/format";
import { bind, step } from "../lib/keys";
import { go, link } from "../lib/route";
import { read as readSandbox } from "../lib/sandboxes";
import { Button } from "../parts/button";
import { ask } from "../parts/dialog";
import { Empty, Loading, Wrong } from "../parts/state";
import { above, below, change, directory, list, place, ROOT, split, type Entry } from "./disk";
import { Entries } from "./entries";
import { dropped, forget, send, sending } from "./uploads";
import { Viewer } from "./viewer";

interface Listed {
  path: string;
  entries: Entry[];
  next: string | undefined;
}

/** Whether names that begin with a dot are shown: in each directory. */
const withHidden = signal(false);

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
  const hidden = withHidden.value;
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
  const visible = useMemo(() => shown.find((one) => one.path === seen?.path && one.type !== "symlink") ?? seen, [shown, seen]);
  const put = (files: { name: string; blob: Blob }[]): void => send(id, path, files, renew);
  useLayoutEffect(
    () =>
      bind([
        { group: "Lists", keys: "j", says: "Down (also ↓)", run: () => step(".row .to", 1) },
        { group: "Lists", keys: "k", says: "Up (also ↑)", run: () => step(".row .to", -1) },
        { group: "Lists", keys: "ArrowDown", also: true, says: "Down", run: () => step(".row .to", 1) },
        { group: "Lists", keys: "ArrowUp", also: true, says: "Up", run: () => step(".row .to", -1) },
        { group: "Files", keys: "u", says: "Upload", run: () => picker.current?.click() },
        { group: "Files", keys: "h", says: "Hidden names", run: () => (withHidden.value = !withHidden.peek()) },
        { group: "Files", keys: "Backspace", says: "The directory above", run: () => go("sandboxes", id, "files", ...place(above(path))) },
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
      <Bar id={id} path={path} wanted={wanted} want={setWanted} hidden={hidden} hide={(hidden) => (withHidden.value = hidden)} picker={picker} put={put} renew={renew} />
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
            <Entries id={id} path={path} shown={shown} chosen={visible} look={setSeen} renew={renew} />
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

interface BarProps {
  id: string;
  path: string;
  wanted: string;
  want: (text: string) => void;
  hidden: boolean;
  hide: (hidden: boolean) => void;
  picker: RefObject<HTMLInputElement>;
  put: (files: { name: string; blob: Blob }[]) => void;
  renew: () => void;
}

function Bar({ id, path, wanted, want, hidden, hide, picker, put, renew }: BarProps): JSX.Element {
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
  return (
    <div class="subbar">
      <Crumbs id={id} path={path} />
      <label class="filter small">
        <span class="unseen">Filter</span>
        <input
          id="filter"
          type="search"
          placeholder="Filter"
          value={wanted}
          onInput={(event) => want(event.currentTarget.value)}
          onKeyDown={(event) => event.key === "Escape" && (want(""), event.currentTarget.blur())}
        />
      </label>
      <label class="check small">
        <input type="checkbox" checked={hidden} onChange={(event) => hide(event.currentTarget.checked)} />
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
  );
}

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
            {written(part)}
          </a>
        </span>
      ))}
    </nav>
  );
}

function Uploads({ id }: { id: string }): JSX.Element | null {
  const all = sending.value.filter((one) => one.sandbox === id);
  if (all.length === 0) return null;
  const shown = all.slice(0, 6);
  return (
    <ul class="uploads" aria-label="Uploads">
      {shown.map((one) => (
        <li key={one.number} class={one.state}>
          <span class="mono">{written(one.path)}</span>
          <progress max={Math.max(one.size, 1)} value={one.state === "done" ? Math.max(one.size, 1) : one.sent} aria-label={`Upload of ${written(one.path)}`} />
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
