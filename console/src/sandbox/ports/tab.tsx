/** Tab with the ports of a sandbox: what listens, and signed links. */

import type { JSX } from "preact";
import { useLayoutEffect } from "preact/hooks";
import { api, at, type Sandbox } from "../../lib/api";
import { plural, visibleName } from "../../lib/format";
import { bind, listKeys } from "../../lib/keys";
import { useLoaded } from "../../lib/load";
import { Button } from "../../parts/button";
import { Show } from "../../parts/show";
import { Empty } from "../../parts/state";
import { ACTIONS, Table } from "../../parts/table";
import { openLink, openPort, revoke } from "./links";

/** A port on which a program listens, or that links lead to. */
export interface Port {
  port: number;
  /** Addresses on which a program listens; empty if none does. */
  addresses: string[];
  /** Name of its links; `undefined` without links, `null` if they have no name. */
  link: string | null | undefined;
}

const POLL_MS = 5000;

async function read(sandbox: string, signal: AbortSignal): Promise<Port[]> {
  const [listening, links] = await Promise.all([
    api().json<{ port: number; addresses: string[] }[]>(at(sandbox, "ports"), { signal }),
    api().json<{ port: number; name: string | null }[]>(at(sandbox, "links"), { signal }),
  ]);
  const all = new Map<number, Port>();
  for (const { port, addresses } of listening) all.set(port, { port, addresses, link: undefined });
  for (const { port, name } of links) all.set(port, { addresses: [], ...all.get(port), port, link: name });
  return [...all.values()].sort((a, b) => a.port - b.port);
}

/** The tab. */
export function Ports({ of }: { of: Sandbox }): JSX.Element {
  const { id, state } = of;
  const all = useLoaded((signal) => read(id, signal), [id, state], {
    everyMs: POLL_MS,
    on: ({ kind, sandbox }) => sandbox === id && kind.startsWith("port_"),
  });
  useLayoutEffect(() => bind(listKeys), []);
  return (
    <Show of={all} rows={3}>
      {(found) => (
        <>
          <div class="subbar">
            <span class="dim">{plural(found.length, "port")}</span>
            <Button icon="plus" changes onClick={() => openLink(id, undefined, all.again)}>
              Create link
            </Button>
          </div>
          {found.length === 0 ? (
            <Empty icon="link" title="No program listens on a port">
              <p>
                Ports on which programs listen appear here. A link gives a browser without a key access to one of them.
              </p>
            </Empty>
          ) : (
            <Table kind="ports" label={`Ports of ${id}`} columns={[{ name: "Port" }, { name: "Program" }, { name: "Addresses", kind: "wide" }, { name: "Links" }, ACTIONS]}>
              {found.map((one) => (
                <Row key={one.port} sandbox={id} of={one} again={all.again} />
              ))}
            </Table>
          )}
        </>
      )}
    </Show>
  );
}

function Row({ sandbox, of, again }: { sandbox: string; of: Port; again: () => Promise<void> }): JSX.Element {
  const { port, addresses, link } = of;
  const listens = addresses.length > 0;
  return (
    <tr class="row" data-port={port}>
      <th scope="row" class="mono">
        {port}
      </th>
      <td>
        <span class={`state ${listens ? "running" : "closed"}`}>
          <i aria-hidden="true" />
          {listens ? "listens" : "none"}
        </span>
      </td>
      <td class="mono dim wide">{addresses.join(", ") || "–"}</td>
      <td class={link === undefined ? "dim" : ""}>{link === undefined ? "no links" : link === null ? "has links" : `links: ${visibleName(link)}`}</td>
      <td class="acts">
        <Button changes hint="Open the port in a new tab, through a link that is valid for an hour" disabled={!listens} onClick={() => void openPort(sandbox, port, again)}>
          Open
        </Button>
        <Button kind="quiet" icon="link" changes label={`Create a link to port ${port}`} onClick={() => openLink(sandbox, port, again)} />
        {link !== undefined && (
          <Button kind="quiet" icon="trash" changes label={`Revoke all links to port ${port}`} onClick={() => revoke(sandbox, port, again)} />
        )}
      </td>
    </tr>
  );
}
