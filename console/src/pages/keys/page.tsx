/** Page with the API keys of the tenant. */

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { current } from "../../lib/access";
import { api } from "../../lib/api";
import { now } from "../../lib/clock";
import { moment, roughDuration, visibleName } from "../../lib/format";
import { useLoaded } from "../../lib/load";
import { notifySuccess } from "../../lib/notice";
import { signOut } from "../../lib/key";
import { Button } from "../../parts/button";
import { confirm } from "../../parts/dialog";
import { Check } from "../../parts/field";
import { Show } from "../../parts/show";
import { Empty } from "../../parts/state";
import { ACTIONS, Table } from "../../parts/table";
import { openKey } from "./create";

/** A key without its secret. */
export interface ApiKey {
  id: string;
  label: string;
  read_only: boolean;
  created_at_ms: number;
  expires_at_ms: number | null;
  revoked_at_ms: number | null;
  last_used_at_ms: number | null;
}

function state(of: ApiKey): "valid" | "expired" | "revoked" {
  if (of.revoked_at_ms !== null) return "revoked";
  return of.expires_at_ms !== null && of.expires_at_ms <= now.value ? "expired" : "valid";
}

/** The page. */
export function KeysPage(): JSX.Element {
  const [withEnded, setWithEnded] = useState(false);
  const all = useLoaded((signal) => api().json<ApiKey[]>("/v1/keys", { signal }), [], { everyMs: 15_000 });
  return (
    <main class="page" id="main" tabIndex={-1}>
      <div class="bar">
        <h1>Keys</h1>
        <span class="grow dim">{current.value && <>of the tenant {current.value.tenant}</>}</span>
        <Check small value={withEnded} set={setWithEnded}>
          Revoked and expired
        </Check>
        <Button icon="plus" kind="main" changes onClick={() => openKey(all.again)}>
          New key
        </Button>
      </div>
      <Show of={all}>
        {(found) => {
          const shown = found.filter((one) => withEnded || state(one) === "valid").reverse();
          if (shown.length === 0) {
            return (
              <Empty icon="keys" title={found.length === 0 ? "No keys yet" : "No valid keys"}>
                <p>Give each person and each program a key of its own, so that you can revoke it alone. The key from the server's environment is not listed.</p>
              </Empty>
            );
          }
          return (
            <Table
              kind="api-keys"
              label="Keys"
              columns={[
                { name: "Key" },
                { name: "State" },
                { name: "May" },
                { name: "Created", number: true, kind: "wide" },
                { name: "Last used", number: true },
                { name: "Expires", number: true, kind: "medium" },
                ACTIONS,
              ]}
            >
              {shown.map((one) => (
                <Row key={one.id} of={one} again={all.again} />
              ))}
            </Table>
          );
        }}
      </Show>
    </main>
  );
}

const ago = (ms: number | null): string => (ms === null ? "never" : `${roughDuration(now.value - ms)} ago`.replace("now ago", "now"));

function Row({ of, again }: { of: ApiKey; again: () => Promise<void> }): JSX.Element {
  const is = state(of);
  const mine = current.value?.id === of.id;
  return (
    <tr class="row" data-key={of.id}>
      <th scope="row">
        {of.label ? visibleName(of.label) : <span class="dim">no label</span>} <code class="dim">{of.id}</code>
        {mine && <span class="chip">this key</span>}
      </th>
      <td>
        <span class={`state ${is === "valid" ? "running" : "closed"}`}>
          <i aria-hidden="true" />
          {is}
        </span>
      </td>
      <td>{of.read_only ? "read" : "everything"}</td>
      <td class="number dim wide">{moment(of.created_at_ms)}</td>
      <td class="number dim cell-used" title="Recorded once a minute">
        {ago(of.last_used_at_ms)}
      </td>
      <td class="number dim medium">{of.expires_at_ms === null ? "never" : moment(of.expires_at_ms)}</td>
      <td class="acts">
        {is === "valid" && (
          <Button changes onClick={() => revoke(of, mine, again)} hint={`Revoke ${of.id}`}>
            Revoke
          </Button>
        )}
      </td>
    </tr>
  );
}

function revoke(of: ApiKey, mine: boolean, again: () => Promise<void>): void {
  confirm({
    title: "Revoke key",
    label: `${of.label ? visibleName(of.label) : of.id} becomes invalid at once, with the links that it created, and its connections end. This cannot be undone.${mine ? " You use this key: you will be signed out." : ""}`,
    act: "Revoke",
    run: async () => {
      await api().send(`/v1/keys/${of.id}`, { method: "DELETE" });
      if (mine) return signOut();
      await again();
      notifySuccess(`${of.id} was revoked`);
    },
  });
}
