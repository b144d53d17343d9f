/** Table of a directory's entries, with actions. */

import { IsoletError } from "@isolet/sdk";
import type { JSX } from "preact";
import { api } from "../../lib/api";
import { bytes, moment, visibleName } from "../../lib/format";
import { attempt, notifySuccess } from "../../lib/notice";
import { go, link } from "../../lib/route";
import { Button } from "../../parts/button";
import { ask, confirm } from "../../parts/dialog";
import { Icon, type IconName } from "../../parts/icon";
import { above, address, below, change, split, stat, type Entry } from "./disk";
import { download } from "./viewer";

const ICONS: Record<Entry["type"], IconName> = { file: "file", directory: "folder", symlink: "link", other: "file" };

interface Props {
  id: string;
  path: string;
  shown: Entry[];
  /** The entry in the viewer. */
  chosen: Entry | undefined;
  look: (entry: Entry) => void;
  renew: () => void;
}

/** The table. */
export function Entries({ id, path, shown, chosen, look, renew }: Props): JSX.Element {
  return (
    <table class="list entries" aria-label={path}>
      <thead>
        <tr>
          <th scope="col">Name</th>
          <th scope="col" class="number">
            Size
          </th>
          <th scope="col" class="number">
            Modified
          </th>
          <th scope="col">Mode</th>
          <th scope="col">
            <span class="unseen">Actions</span>
          </th>
        </tr>
      </thead>
      <tbody>
        {shown.map((one) => (
          <Row key={one.path_b64 ?? one.path} id={id} of={one} chosen={one.path === chosen?.path} look={look} renew={renew} />
        ))}
      </tbody>
    </table>
  );
}

/** Open an entry: a link opens its target, and a directory is entered. */
async function follow(id: string, of: Entry, look: (entry: Entry) => void): Promise<void> {
  if (of.type !== "symlink") return look(of);
  const found = await attempt(`Could not follow ${visibleName(of.name)}`, () => stat(id, of));
  if (found?.type === "directory") go("sandboxes", id, "files", ...split(of.path));
  else if (found) look({ ...of, size: found.size, modified_ms: found.modified_ms });
}

function Row(props: { id: string; of: Entry; chosen: boolean; look: (entry: Entry) => void; renew: () => void }): JSX.Element {
  const { id, of, chosen, look, renew } = props;
  const name = (
    <>
      <Icon icon={ICONS[of.type]} />
      <span>{visibleName(of.name)}</span>
      {of.target !== undefined && <span class="dim"> → {visibleName(of.target)}</span>}
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
          <button type="button" class="to" onClick={() => void follow(id, of, look)} disabled={of.type === "other" || of.type === "directory"}>
            {name}
          </button>
        )}
      </th>
      <td class="number cell-size">{of.type === "directory" ? "" : bytes(of.size)}</td>
      <td class="number dim cell-age">{moment(of.modified_ms)}</td>
      <td class="mono dim cell-mode">{of.mode}</td>
      <td class="acts">
        <Button icon="down" kind="quiet" label={of.type === "directory" ? `Download ${visibleName(of.name)} as an archive` : `Download ${visibleName(of.name)}`} disabled={of.type === "other"} onClick={() => void download(id, of)} />
        <Button icon="edit" kind="quiet" changes label={`Rename ${visibleName(of.name)}`} onClick={() => rename(id, of, renew)} />
        <Button icon="trash" kind="quiet" changes label={`Delete ${visibleName(of.name)}`} onClick={() => remove(id, of, renew)} />
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
    note: "A name with slashes moves it, relative to its current directory.",
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
    label: `${visibleName(of.path)}${directory ? " and everything in it" : ""} will be deleted. This cannot be undone.`,
    act: "Delete",
    run: async () => {
      try {
        await api().send(address(id, of) + (directory ? "?recursive=1" : ""), { method: "DELETE" });
      } catch (error) {
        if (!(error instanceof IsoletError && error.status === 404)) throw error;
      }
      notifySuccess(`${visibleName(of.name)} was deleted`);
      renew();
    },
  });
}
