/** Tab with limits, lifecycle, configuration, losses of the last sleep, and recordings. */

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { sleepLosses } from "../../lib/actions";
import { api, at, type Sandbox } from "../../lib/api";
import { now } from "../../lib/clock";
import { saveFile } from "../../lib/download";
import { bytes, cores, mib, moment, roughDuration, formatDuration } from "../../lib/format";
import { attempt, notifySuccess } from "../../lib/notice";
import { updateSandbox, measured } from "../../lib/sandboxes";
import { Button } from "../../parts/button";
import { ask, confirm } from "../../parts/dialog";

/** The tab. */
export function Details({ of }: { of: Sandbox }): JSX.Element {
  const uses = measured.value.get(of.id)?.usage;
  const ends = of.expires_at_ms;
  return (
    <div class="details">
      <Group title="Limits">
        <Fact name="Memory">
          {mib(of.memory_mib)}
          <Change of={of} field="memory_mib" label="Memory in MiB" value={String(of.memory_mib)} />
          {uses && <em>in use: {bytes(uses.memory_bytes)}, peak: {bytes(uses.memory_peak_bytes)}</em>}
        </Fact>
        <Fact name="CPU">
          {cores(of.cpu_millis)} of a core
          <Change of={of} field="cpu_millis" label="CPU in thousandths of a core" value={String(of.cpu_millis)} />
          {uses && <em>CPU time: {formatDuration(uses.cpu_ms)}</em>}
        </Fact>
        <Fact name="Processes">
          {of.pids}
          <Change of={of} field="pids" label="Processes and threads" value={String(of.pids)} />
          {uses && <em>in use: {uses.pids}</em>}
        </Fact>
        <Fact name="Disk">
          {of.disk_mib ? mib(of.disk_mib) : "no limit"}
          {uses?.disk_bytes !== undefined && <em>in use: {bytes(uses.disk_bytes)}</em>}
        </Fact>
        {uses !== undefined && uses.oom_kills > 0 && <Fact name="Killed for memory">{uses.oom_kills}</Fact>}
      </Group>
      <Group title="Lifecycle">
        <Fact name="Created">
          {moment(of.created_at_ms)} <em>in {of.create_ms.toFixed(1)} ms</em>
        </Fact>
        {of.agent_outdated && (
          <Fact name="Agent">
            of an earlier version <em>replaced when the sandbox sleeps and wakes</em>
          </Fact>
        )}
        {uses && <Fact name="Uptime">{roughDuration(uses.uptime_ms)}</Fact>}
        <Fact name="Sleep">
          {of.sleep_after_s === null ? "never" : `after ${formatDuration(of.sleep_after_s * 1000)} idle`}
          <Change of={of} field="sleep_after_s" label="Idle seconds before sleep; 0 = never" value={String(of.sleep_after_s ?? 0)} />
        </Fact>
        <Fact name="Expires">
          {ends === null ? "never" : `in ${roughDuration(Math.max(ends - now.value, 0))}, at ${moment(ends)}`}
          <Change of={of} field="ttl_s" label="Lifetime in seconds from now; 0 = unlimited" value={String(of.ttl_s ?? 0)} />
        </Fact>
        <Fact name="Files">{of.persistent ? "preserved during sleep" : "lost during sleep"}</Fact>
      </Group>
      <Group title="Configuration">
        <Fact name="Image">
          <code>{of.image}</code>
          {of.image_resolved !== of.image && <em>resolved to {of.image_resolved}</em>}
        </Fact>
        <Fact name="Network">{of.network === "none" ? "loopback only" : of.network}</Fact>
        <Fact name="Environment">
          {of.env_names.length === 0 ? <em>none</em> : of.env_names.map((name) => <code key={name} class="chip">{name}</code>)}
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
      icon="edit"
      kind="quiet"
      changes
      label={`Change: ${label}`}
      onClick={() =>
        ask({
          title: `Change ${of.id}`,
          label,
          value,
          act: "Change",
          run: async (text) => {
            const json = { [field]: /^\d+$/.test(text.trim()) ? Number(text.trim()) : text };
            updateSandbox(await api().json<Sandbox>(at(of.id), { method: "PATCH", json }));
            notifySuccess("Changed");
          },
        })
      }
    />
  );
}

const WHY: Record<string, string> = {
  crash: "the host was restarted",
  too_large: "the shell's state exceeded the size limit",
  no_answer: "bash did not respond in time",
  not_kept: "the state could not be written to the server's disk",
  not_restored: "part of the state could not be restored",
};

function Losses({ of }: { of: Sandbox }): JSX.Element | null {
  const losses = sleepLosses.value.get(of.id);
  if (!losses) return null;
  return (
    <Group title="Lost in the last sleep">
      <Fact name="Lost">
        {losses.what.join(", ").replaceAll("_", " ")} <em>reported {roughDuration(now.value - losses.at)} ago</em>
      </Fact>
      {losses.shells.map((one) => (
        <Fact key={one.session} name={one.session}>
          {WHY[one.why] ?? one.why}
          <em>{one.saved_at_ms === null ? "a new shell was started" : `restored to its state of ${moment(one.saved_at_ms)}`}</em>
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
          {one.cut && <em>incomplete</em>}
          <Button
            icon="down"
            kind="quiet"
            label="Download (asciicast)"
            onClick={() =>
              void attempt("Could not download", async () => {
                const file = await api().send(at(of.id, "recordings", one.id));
                saveFile(await file.blob(), `${of.id}-${one.session}.cast`);
              })
            }
          />
          <Button
            icon="trash"
            kind="quiet"
            changes
            label="Delete this recording"
            onClick={() =>
              confirm({
                title: "Delete recording",
                label: `The recording of ${one.session} from ${moment(Date.parse(one.started_at))} will be deleted.`,
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
