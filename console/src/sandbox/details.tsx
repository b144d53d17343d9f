/** What a sandbox is: limits, life, names of its environment, recordings, and what a sleep has cost. */

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { lost } from "../lib/actions";
import { api, at, type Sandbox } from "../lib/api";
import { now } from "../lib/clock";
import { saved } from "../lib/download";
import { bytes, cores, mib, moment, rough, span } from "../lib/format";
import { attempt, done } from "../lib/notice";
import { known, measured } from "../lib/sandboxes";
import { Button } from "../parts/button";
import { ask, confirm } from "../parts/dialog";

/** The tab. */
export function Details({ of }: { of: Sandbox }): JSX.Element {
  const uses = measured.value.get(of.id)?.usage;
  const ends = of.expires_at_ms;
  return (
    <div class="details">
      <Group title="Limits">
        <Fact name="Memory">
          {mib(of.memory_mib)}
          {uses && <em>uses {bytes(uses.memory_bytes)}, at most {bytes(uses.memory_peak_bytes)}</em>}
          <Change of={of} field="memory_mib" label="Memory in MiB" value={String(of.memory_mib)} />
        </Fact>
        <Fact name="CPU">
          {cores(of.cpu_millis)} of a core
          {uses && <em>spent {span(uses.cpu_ms)}</em>}
          <Change of={of} field="cpu_millis" label="CPU in thousandths of a core" value={String(of.cpu_millis)} />
        </Fact>
        <Fact name="Processes">
          {of.pids}
          {uses && <em>now {uses.pids}</em>}
          <Change of={of} field="pids" label="Processes and threads" value={String(of.pids)} />
        </Fact>
        <Fact name="Disk">
          {of.disk_mib ? mib(of.disk_mib) : "as much as the server has"}
          {uses?.disk_bytes !== undefined && <em>uses {bytes(uses.disk_bytes)}</em>}
        </Fact>
        {uses !== undefined && uses.oom_kills > 0 && <Fact name="Killed for memory">{uses.oom_kills}</Fact>}
      </Group>
      <Group title="Life">
        <Fact name="Made">
          {moment(of.created_at_ms)} <em>in {of.create_ms.toFixed(1)} ms</em>
        </Fact>
        {uses && <Fact name="Up for">{rough(uses.uptime_ms)}</Fact>}
        <Fact name="Sleeps">
          {of.sleep_after_s === null ? "never" : `after ${span(of.sleep_after_s * 1000)} without use`}
          <Change of={of} field="sleep_after_s" label="Seconds without use; 0 never" value={String(of.sleep_after_s ?? 0)} />
        </Fact>
        <Fact name="Ends">
          {ends === null ? "only when it is destroyed" : `in ${rough(Math.max(ends - now.value, 0))}, at ${moment(ends)}`}
          <Change of={of} field="ttl_s" label="Seconds to live from now; 0 without end" value={String(of.ttl_s ?? 0)} />
        </Fact>
        <Fact name="Files">{of.persistent ? "outlive a sleep" : "are lost by a sleep"}</Fact>
      </Group>
      <Group title="What it is made of">
        <Fact name="Image">
          <code>{of.image}</code>
          {of.image_resolved !== of.image && <em>stands for {of.image_resolved}</em>}
        </Fact>
        <Fact name="Network">{of.network === "none" ? "loopback only" : of.network}</Fact>
        <Fact name="Environment">
          {of.env_names.length === 0 ? <em>no names</em> : of.env_names.map((name) => <code key={name} class="chip">{name}</code>)}
        </Fact>
        {Object.keys(of.metadata).length > 0 && (
          <Fact name="Metadata">
            <pre>{JSON.stringify(of.metadata, null, 2)}</pre>
          </Fact>
        )}
      </Group>
      <Losses of={of} />
      <Recordings of={of} />
    </div>
  );
}

function Group({ title, children }: { title: string; children: ComponentChildren }): JSX.Element {
  return (
    <section class="facts">
      <h2>{title}</h2>
      <dl>{children}</dl>
    </section>
  );
}

function Fact({ name, children }: { name: string; children: ComponentChildren }): JSX.Element {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function Change(props: { of: Sandbox; field: string; label: string; value: string }): JSX.Element {
  const { of, field, label, value } = props;
  return (
    <Button
      sign="edit"
      kind="quiet"
      label={`Change: ${label}`}
      onClick={() =>
        ask({
          title: `Change ${of.id}`,
          label,
          value,
          act: "Change",
          run: async (told) => {
            const json = { [field]: /^\d+$/.test(told.trim()) ? Number(told.trim()) : told };
            known(await api().json<Sandbox>(at(of.id), { method: "PATCH", json }));
            done("Changed");
          },
        })
      }
    />
  );
}

const WHY: Record<string, string> = {
  crash: "the machine was started anew",
  too_large: "it held more than is kept",
  no_answer: "bash did not tell in time",
  not_kept: "the server's disk did not take it",
  not_restored: "part of it could not be made again",
};

function Losses({ of }: { of: Sandbox }): JSX.Element | null {
  const said = lost.value.get(of.id);
  if (!said) return null;
  return (
    <Group title="What the last sleep has cost">
      <Fact name="Lost">
        {said.what.join(", ").replaceAll("_", " ")} <em>told {rough(now.value - said.at)} ago</em>
      </Fact>
      {said.shells.map((one) => (
        <Fact key={one.session} name={one.session}>
          {WHY[one.why] ?? one.why}
          <em>{one.saved_at_ms === null ? "it begins anew" : `it is as it was at ${moment(one.saved_at_ms)}`}</em>
        </Fact>
      ))}
    </Group>
  );
}

interface Recording {
  id: string;
  session: string;
  started_at: string;
  ended_at: string | null;
  size: number;
  cut: boolean;
}

function Recordings({ of }: { of: Sandbox }): JSX.Element | null {
  const [all, setAll] = useState<Recording[]>([]);
  const read = async (): Promise<void> => {
    setAll(await api().json<Recording[]>(at(of.id, "recordings")).catch(() => []));
  };
  useEffect(() => void read(), [of.id]);
  if (all.length === 0) return null;
  return (
    <Group title="Recordings">
      {all.map((one) => (
        <Fact key={one.id} name={one.session}>
          {moment(Date.parse(one.started_at))}, {bytes(one.size)}
          {one.ended_at === null && <em>still recording</em>}
          {one.cut && <em>cut</em>}
          <Button
            sign="down"
            kind="quiet"
            label="Download (asciicast)"
            onClick={() =>
              void attempt("Cannot download", async () => {
                const file = await api().send(at(of.id, "recordings", one.id));
                saved(await file.blob(), `${of.id}-${one.session}.cast`);
              })
            }
          />
          <Button
            sign="trash"
            kind="quiet"
            label="Delete this recording"
            onClick={() =>
              confirm({
                title: "Delete recording",
                says: `The recording of ${one.session} from ${moment(Date.parse(one.started_at))} is deleted.`,
                act: "Delete",
                run: async () => {
                  await api().send(at(of.id, "recordings", one.id), { method: "DELETE" });
                  await read();
                },
              })
            }
          />
        </Fact>
      ))}
    </Group>
  );
}
