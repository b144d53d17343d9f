/** Tab with the network of a sandbox: its rules, credentials, and connections that were refused. */

import type { JSX } from "preact";
import { api, at, type Sandbox } from "../../lib/api";
import { useLoaded } from "../../lib/load";
import { updateSandbox } from "../../lib/sandboxes";
import { Button } from "../../parts/button";
import { Show } from "../../parts/show";
import { Credentials } from "./credentials";
import { openReplace } from "./replace";
import { Refused } from "./refused";
import { Rules } from "./rules";

/** The network of a sandbox. */
export interface Network {
  mode: "none" | "open" | "rules";
  allow: string[];
  deny: string[];
  profile?: string;
  credentials?: { host: string; header?: string; placeholder?: string; allowed: boolean }[];
}

/** Changes the network; the answer is shown. */
export type Change = (json: Record<string, unknown>) => Promise<void>;

const MODES: Record<Network["mode"], { title: string; text: string }> = {
  none: { title: "None", text: "Programs reach only loopback." },
  open: { title: "Open", text: "Programs reach everything but this machine, private networks and other sandboxes." },
  rules: { title: "Rules", text: "Programs reach what a rule allows and no rule denies." },
};

/** The tab. */
export function NetworkTab({ of }: { of: Sandbox }): JSX.Element {
  const { id } = of;
  const network = useLoaded((signal) => api().json<Network>(at(id, "network"), { signal }), [id], {
    on: ({ kind, sandbox }) => sandbox === id && kind === "network_changed",
  });
  const change: Change = async (json) => {
    await api().json<Network>(at(id, "network"), { method: "PATCH", json });
    updateSandbox(await api().json<Sandbox>(at(id)));
    await network.again();
  };
  return (
    <Show of={network} rows={4}>
      {(now) => (
        <div class="network">
          <div class="subbar">
            <p class="dim">
              <strong class="ink">
                {MODES[now.mode].title}
                {now.profile !== undefined && `, from the profile ${now.profile}`}.
              </strong>{" "}
              {MODES[now.mode].text}
            </p>
            <Button changes onClick={() => openReplace(id, now, change)}>
              Change network
            </Button>
          </div>
          <div class="network-body">
            {now.mode !== "none" && <Rules of={now} change={change} />}
            <Credentials sandbox={id} of={now} change={change} />
          </div>
          <Refused sandbox={id} mode={now.mode} change={change} />
        </div>
      )}
    </Show>
  );
}
