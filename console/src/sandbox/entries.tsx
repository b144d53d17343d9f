/** The entries of a directory, and what can be done with each. */

import { IsoletError } from "@isolet/sdk";
import type { JSX } from "preact";
import { api } from "../lib/api";
import { bytes, moment, written } from "../lib/format";
import { attempt, done } from "../lib/notice";
import { go, link } from "../lib/route";
import { Button } from "../parts/button";
import { ask, confirm } from "../parts/dialog";
import { Icon, type Sign } from "../parts/icon";
import { above, address, below, change, split, stat, type Entry } from "./disk";
import { download } from "./viewer";

const SIGNS: Record<Entry["type"], Sign> = { file: "file", directory: "folder", symlink: "link", other: "file" };

interface Props {
  id: string;
  path: string;
  shown: Entry[];
  /** The one that is looked at. */
  chosen: Entry | undefined;
  look: (entry: Entry) => void;
  renew: () => void;
}

/** The table of them. */
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
          <Row key={one.path_b64 ?? one.path} id={id} of={one} chosen={one.path === chosen?.path} look={look} renew={renew} />
        ))}
      </tbody>
    </table>
  );
}

/** A link is looked at as what it leads to: a directory is entered. */
async function follow(id: string, of: Entry, look: (entry: Entry) => void): Promise<void> {
  if (of.type !== "symlink") return look(of);
  const found = await attempt(`${written(of.name)} leads nowhere`, () => stat(id, of));
  if (found?.type === "directory") go("sandboxes", id, "files", ...split(of.path));
  else if (found) look({ ...of, size: found.size, modified_ms: found.modified_ms });
}

function Row(props: { id: string; of: Entry; chosen: boolean; look: (entry: Entry) => void; renew: () => void }): JSX.Element {
  const { id, of, chosen, look, renew } = props;
  const name = (
    <>
      <Icon sign={SIGNS[of.type]} />
      <span>{written(of.name)}</span>
      {of.target !== undefined && <span class="dim"> → {written(of.target)}</span>}
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
        <Button sign="down" kind="quiet" label={of.type === "directory" ? `Download ${written(of.name)} as an archive` : `Download ${written(of.name)}`} disabled={of.type === "other"} onClick={() => void download(id, of)} />
        <Button sign="edit" kind="quiet" label={`Rename ${written(of.name)}`} onClick={() => rename(id, of, renew)} />
        <Button sign="trash" kind="quiet" label={`Delete ${written(of.name)}`} onClick={() => remove(id, of, renew)} />
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
    says: `${written(of.path)}${directory ? " and all that it holds" : ""} is deleted. This cannot be undone.`,
    act: "Delete",
    run: async () => {
      try {
        await api().send(address(id, of) + (directory ? "?recursive=1" : ""), { method: "DELETE" });
      } catch (error) {
        if (!(error instanceof IsoletError && error.status === 404)) throw error;
      }
      done(`${written(of.name)} is deleted`);
      renew();
    },
  });
}
