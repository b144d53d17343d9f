/** Page with the images of the tenant. */

import type { JSX } from "preact";
import { useLayoutEffect } from "preact/hooks";
import { api } from "../../lib/api";
import { now } from "../../lib/clock";
import { bytes, roughDuration, visibleName } from "../../lib/format";
import { bind, listKeys } from "../../lib/keys";
import { useLoaded } from "../../lib/load";
import { notifySuccess } from "../../lib/notice";
import { Button } from "../../parts/button";
import { confirm } from "../../parts/dialog";
import { Show } from "../../parts/show";
import { Empty } from "../../parts/state";
import { ACTIONS, Table } from "../../parts/table";
import { openCreateFrom } from "../sandboxes/create";
import { openPull } from "./pull";
import { Pulls } from "./pulls";

/** An image. */
export interface Image {
  digest: string;
  names: string[];
  source: string;
  unpacked_bytes: number;
  layers: number;
  platform: string;
  pulled_at_ms: number;
}

const SOURCES: Record<string, string> = { registry: "registry", archive: "archive", snapshot: "snapshot" };

/** Path of an image: the slashes of its name stay. */
const path = (name: string): string => `/v1/images/${name.split("/").map(encodeURIComponent).join("/")}`;

/** The page. */
export function ImagesPage(): JSX.Element {
  const all = useLoaded((signal) => api().json<Image[]>("/v1/images", { signal }), [], { everyMs: 15_000 });
  useLayoutEffect(() => bind(listKeys), []);
  return (
    <main class="page" id="main" tabIndex={-1}>
      <div class="bar">
        <h1>
          Images <span class="count">{all.value?.length}</span>
        </h1>
        <span class="grow" />
        <Button kind="quiet" changes onClick={() => collect(all.again)} hint="Remove images without a name, and layers that no image uses">
          Remove unused
        </Button>
        <Button icon="down" kind="main" changes onClick={() => openPull(all.again)}>
          Pull image
        </Button>
      </div>
      <Pulls />
      <Show of={all}>
        {(found) =>
          found.length === 0 ? (
            <Empty icon="box" title="No images yet">
              <p>
                Sandboxes start from the programs of this machine (<code>host</code>) unless they name an image. Pull one from a registry, such as <code>debian:13</code>.
              </p>
              <Button icon="down" kind="main" changes onClick={() => openPull(all.again)}>
                Pull image
              </Button>
            </Empty>
          ) : (
            <Table
              kind="images"
              label="Images"
              columns={[{ name: "Names" }, { name: "Size", number: true }, { name: "Layers", number: true, kind: "wide" }, { name: "Platform", kind: "wide" }, { name: "From", kind: "medium" }, { name: "Age", number: true }, ACTIONS]}
            >
              {found.map((one) => (
                <Row key={one.digest} of={one} again={all.again} />
              ))}
            </Table>
          )
        }
      </Show>
    </main>
  );
}

function Row({ of, again }: { of: Image; again: () => Promise<void> }): JSX.Element {
  const first = of.names[0];
  return (
    <tr class="row" data-image={first ?? of.digest}>
      <th scope="row">
        {of.names.length === 0 && <span class="dim">no name</span>}
        <ul class="names">
          {of.names.map((name) => (
            <li key={name}>
              <span class="mono">{visibleName(name)}</span>
              <Button icon="close" kind="quiet" changes label={`Remove the name ${visibleName(name)}`} onClick={() => remove(name, of.names.length === 1, again)} />
            </li>
          ))}
        </ul>
        <code class="dim" title={of.digest}>
          {of.digest.replace(/^sha256:/, "").slice(0, 12)}
        </code>
      </th>
      <td class="number">{bytes(of.unpacked_bytes)}</td>
      <td class="number dim wide">{of.layers}</td>
      <td class="dim wide">{of.platform}</td>
      <td class="dim medium">{SOURCES[of.source] ?? of.source}</td>
      <td class="number cell-age">{roughDuration(now.value - of.pulled_at_ms)}</td>
      <td class="acts">
        {first !== undefined && (
          <Button changes onClick={() => openCreateFrom(first)} hint={`New sandbox from ${first}`}>
            New sandbox
          </Button>
        )}
      </td>
    </tr>
  );
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

function collect(again: () => Promise<void>): void {
  confirm({
    title: "Remove unused images",
    label: "This deletes images without a name, and layers that no image uses.",
    act: "Remove",
    run: async () => {
      const { images, layers } = await api().json<{ images: number; layers: number }>("/v1/images/gc", { json: {} });
      await again();
      notifySuccess(`removed: ${images} images, ${layers} layers`);
    },
  });
}
