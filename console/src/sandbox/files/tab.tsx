/** Tab with the files of a sandbox, one directory at a time. */

import { IsoletError } from "@isolet/sdk";
import { signal } from "@preact/signals";
import type { JSX, RefObject } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import * as actions from "../../lib/actions";
import { api, describeError, type Sandbox } from "../../lib/api";
import { onEvent } from "../../lib/events";
import { bytes, plural, visibleName } from "../../lib/format";
import { bind, listKeys } from "../../lib/keys";
import { go, link } from "../../lib/route";
import { read as readSandbox } from "../../lib/sandboxes";
import { Button } from "../../parts/button";
import { ask } from "../../parts/dialog";
import { Empty, Loading, LoadError } from "../../parts/state";
import { above, address, below, change, directory, existing, list, place, ROOT, split, type Entry } from "./disk";
import { Entries } from "./entries";
import { droppedFiles, forget, send, uploads } from "./uploads";
import { Viewer } from "./viewer";

interface Listing {
  path: string;
  entries: Entry[];
  next: string | undefined;
}

/** Whether hidden files are shown, for all directories. */
const withHidden = signal(false);

/** The tab. An empty `path` means the workspace. */
export function Files({ sandbox, path: routePath }: { sandbox: Sandbox; path: string }): JSX.Element {
  const { id } = sandbox;
  const path = routePath === "" ? ROOT : routePath === "." ? "/" : `/${routePath}`;
  if (sandbox.state !== "running") {
    return (
      <Empty icon={sandbox.state === "sleeping" ? "sleep" : "folder"} title={`This sandbox is ${sandbox.state}`}>
        {sandbox.state === "sleeping" && (
          <>
            <p>{sandbox.persistent ? "Its files are preserved." : "Its files were lost when it fell asleep."} Wake the sandbox to browse them.</p>
            <Button kind="main" icon="wake" changes onClick={() => void actions.wake(id).then(() => readSandbox(id))}>
              Wake
            </Button>
          </>
        )}
      </Empty>
    );
  }
  return <Browser key={path} id={id} path={path} />;
}

function useListing(id: string, path: string, hidden: boolean): { listing: Listing | undefined; wrong: ReturnType<typeof describeError> | undefined; renew: () => void; more: () => void } {
  const [listing, setListing] = useState<Listing>();
  const [wrong, setWrong] = useState<ReturnType<typeof describeError>>();
  const [toggle, setTurn] = useState(0);
  useEffect(() => {
    const ends = new AbortController();
    list(directory(id, path, hidden), ends.signal)
      .then(({ entries, next }) => {
        setListing({ path, entries, next });
        setWrong(undefined);
      })
      .catch((error: unknown) => !ends.signal.aborted && setWrong(describeError(error)));
    return () => ends.abort();
  }, [id, path, hidden, toggle]);
  // A command may have changed files.
  useEffect(() => {
    let due: ReturnType<typeof setTimeout> | undefined;
    const unsubscribe = onEvent(({ kind, sandbox }) => {
      if (sandbox === id && kind === "command_exited") due ??= setTimeout(() => ((due = undefined), setTurn((n) => n + 1)), 500);
    });
    return () => {
      clearTimeout(due);
      unsubscribe();
    };
  }, [id]);
  const more = (): void => {
    if (!listing?.next) return;
    void list(listing.next, new AbortController().signal).then(({ entries, next }) =>
      setListing({ path, entries: [...listing.entries, ...entries], next }),
    );
  };
  return { listing, wrong, renew: () => setTurn((n) => n + 1), more };
}

function Browser({ id, path }: { id: string; path: string }): JSX.Element {
  const hidden = withHidden.value;
  const [wanted, setWanted] = useState("");
  const [over, setOver] = useState(false);
  const [seen, setSeen] = useState<Entry>();
  const picker = useRef<HTMLInputElement>(null);
  const { listing, wrong, renew, more } = useListing(id, path, hidden);
  const shown = useMemo(() => {
    const text = wanted.toLowerCase();
    const first = (one: Entry): number => (one.type === "directory" ? 0 : 1);
    return (listing?.entries ?? [])
      .filter((one) => one.name.toLowerCase().includes(text))
      .sort((a, b) => first(a) - first(b));
  }, [listing, wanted]);
  const visible = useMemo(() => shown.find((one) => one.path === seen?.path && one.type !== "symlink") ?? seen, [shown, seen]);
  const put = (files: { name: string; blob: Blob }[]): void => send(id, path, files, renew);
  useLayoutEffect(
    () =>
      bind([
        ...listKeys,
        { group: "Files", keys: "u", label: "Upload", run: () => picker.current?.click() },
        { group: "Files", keys: "h", label: "Show hidden files", run: () => (withHidden.value = !withHidden.peek()) },
        { group: "Files", keys: "Backspace", label: "Parent directory", run: () => go("sandboxes", id, "files", ...place(above(path))) },
        { group: "Files", keys: "Escape", label: "Close the file", run: () => setSeen(undefined) },
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
        if (event.dataTransfer) void droppedFiles(event.dataTransfer).then(put);
      }}
    >
      <Bar id={id} path={path} wanted={wanted} want={setWanted} hidden={hidden} hide={(hidden) => (withHidden.value = hidden)} picker={picker} put={put} renew={renew} edit={setSeen} />
      <Uploads id={id} />
      <div class="files-body">
        <div class="files-list">
          {wrong ? (
            <LoadError {...wrong} again={renew} />
          ) : !listing ? (
            <Loading rows={7} />
          ) : shown.length === 0 ? (
            <Empty icon="folder" title={wanted ? `No matches for “${wanted}”` : "This directory is empty"}>
              {!wanted && <p>Drop files here or upload them.{hidden ? "" : " Hidden files are not shown."}</p>}
            </Empty>
          ) : (
            <Entries id={id} path={path} shown={shown} chosen={visible} look={setSeen} renew={renew} />
          )}
          {listing?.next && (
            <div class="more">
              <Button onClick={more}>Show more ({plural(listing.entries.length, "entry", "entries")} shown)</Button>
            </div>
          )}
        </div>
        {visible && <Viewer sandbox={id} of={visible} saved={renew} leave={() => setSeen(undefined)} />}
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
  /** Open a new file. */
  edit: (entry: Entry) => void;
}

function Bar({ id, path, wanted, want, hidden, hide, picker, put, renew, edit }: BarProps): JSX.Element {
  const mkdir = (): void =>
    ask({
      title: "New folder",
      label: `Name in ${path}`,
      act: "Create",
      run: async (name) => {
        await change(id, { op: "mkdir", path: below(path, name) });
        renew();
      },
    });
  const touch = (): void =>
    ask({
      title: "New file",
      label: `Name in ${path}`,
      act: "Create",
      run: async (name) => {
        const file = below(path, name);
        if ((await existing(id, file)) !== undefined) throw new IsoletError(409, "exists", `${file} exists`, "choose another name");
        await api().send(address(id, { path: file }), { method: "PUT", body: "" });
        renew();
        edit({ name: name.split("/").at(-1)!, path: file, type: "file", size: 0, modified_ms: Date.now(), mode: "" });
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
        <span>Hidden files</span>
      </label>
      <Button icon="again" kind="quiet" label="Refresh" onClick={renew} />
      <Button icon="file" changes onClick={touch}>
        New file
      </Button>
      <Button icon="folder" changes onClick={mkdir}>
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
      <Button icon="up" kind="main" changes onClick={() => picker.current?.click()} hint="Upload (u), or drop files here">
        Upload
      </Button>
    </div>
  );
}

function Crumbs({ id, path }: { id: string; path: string }): JSX.Element {
  const parts = split(path);
  return (
    <nav class="crumbs mono" aria-label="Directory">
      <a href={link("sandboxes", id, "files", ".")} aria-label="Root directory">
        /
      </a>
      {parts.map((part, i) => (
        <span key={i}>
          {i > 0 && <i aria-hidden="true">/</i>}
          <a href={link("sandboxes", id, "files", ...parts.slice(0, i + 1))} aria-current={i === parts.length - 1 ? "page" : undefined}>
            {visibleName(part)}
          </a>
        </span>
      ))}
    </nav>
  );
}

function Uploads({ id }: { id: string }): JSX.Element | null {
  const all = uploads.value.filter((one) => one.sandbox === id);
  if (all.length === 0) return null;
  const shown = all.slice(0, 6);
  return (
    <ul class="uploads" aria-label="Uploads">
      {shown.map((one) => (
        <li key={one.number} class={one.state}>
          <span class="mono">{visibleName(one.path)}</span>
          <progress max={Math.max(one.size, 1)} value={one.state === "done" ? Math.max(one.size, 1) : one.sent} aria-label={`Upload of ${visibleName(one.path)}`} />
          <span class="dim">
            {one.state === "failed" ? one.why : one.state === "done" ? "done" : `${bytes(one.sent)} of ${bytes(one.size)}`}
          </span>
          <Button
            icon="close"
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
