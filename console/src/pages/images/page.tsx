/** Page with the images of the tenant. */

import type { JSX } from "preact";
import { useLayoutEffect } from "preact/hooks";
import { api } from "../../lib/api";
import { now } from "../../lib/clock";
import { bytes, roughDuration } from "../../lib/format";
import { bind, listKeys } from "../../lib/keys";
import { useLoaded } from "../../lib/load";
import { notifySuccess } from "../../lib/notice";
import { Button } from "../../parts/button";
import { confirm } from "../../parts/dialog";
import { Show } from "../../parts/show";
import { Empty } from "../../parts/state";
import { ACTIONS, Table } from "../../parts/table";
import { openCreateFrom } from "../sandboxes/create";
import { type Alias, Aliases, Names, openTag } from "./names";
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

/** The page. */
export function ImagesPage(): JSX.Element {
  const all = useLoaded((signal) => api().json<Image[]>("/v1/images", { signal }), [], { everyMs: 15_000 });
  const aliases = useLoaded((signal) => api().json<Alias[]>("/v1/images/aliases", { signal }), []);
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
                <Row key={one.digest} of={one} aliases={aliases.value ?? []} again={all.again} />
              ))}
            </Table>
          )
        }
      </Show>
      <Aliases of={aliases} />
    </main>
  );
}

function Row({ of, aliases, again }: { of: Image; aliases: Alias[]; again: () => Promise<void> }): JSX.Element {
  const first = of.names[0];
  return (
    <tr class="row" data-image={first ?? of.digest}>
      <th scope="row">
        {of.names.length === 0 && <span class="dim">no name</span>}
        <Names names={of.names} aliases={aliases.filter(({ image }) => of.names.includes(image))} again={again} />
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
          <>
            <Button changes onClick={() => openTag(first, again)} hint={`Give ${first} another name`}>
              Add name
            </Button>
            <Button changes onClick={() => openCreateFrom(first)} hint={`New sandbox from ${first}`}>
              New sandbox
            </Button>
          </>
        )}
      </td>
    </tr>
  );
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
