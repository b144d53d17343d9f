/** Inputs for the network of a sandbox, which the dialog for a new sandbox and the network tab share. */

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { IsoletError } from "@isolet/sdk";
import { api } from "../../lib/api";
import { words } from "../../lib/parse";
import { Button } from "../../parts/button";
import { Area, Field, Select } from "../../parts/field";

/** What the user has chosen. `mode` is empty for the default, or `profile:NAME`. */
export interface NetworkChoice {
  mode: string;
  allow: string;
  deny: string;
}

/** Nothing chosen. */
export const NO_CHOICE: NetworkChoice = { mode: "", allow: "", deny: "" };

/** Fields of the API for a choice. */
export function networkFields({ mode, allow, deny }: NetworkChoice): { network?: unknown; network_profile?: string } {
  if (mode === "") return {};
  if (mode.startsWith("profile:")) return { network_profile: mode.slice("profile:".length) };
  if (mode !== "rules") return { network: mode };
  return { network: { allow: words(allow), deny: words(deny) } };
}

/** Profiles that are the same as another choice. */
const SAME = ["none", "unrestricted"];

/** The inputs. `standard` adds the server's default as a choice. */
export function NetworkFields(props: { value: NetworkChoice; set: (value: NetworkChoice) => void; standard?: boolean }): JSX.Element {
  const { value, set } = props;
  const [profiles, setProfiles] = useState<string[]>([]);
  useEffect(() => {
    void api()
      .json<{ name: string }[]>("/v1/network-profiles")
      .then((all) => setProfiles(all.map(({ name }) => name).filter((name) => !SAME.includes(name))))
      .catch(() => undefined);
  }, []);
  const options: [string, string][] = [
    ...(props.standard ? [["", "server default"] as [string, string]] : []),
    ["none", "none: loopback only"],
    ["rules", "rules: only what is allowed below"],
    ["open", "open: everything but private networks"],
    ...profiles.map((name): [string, string] => [`profile:${name}`, `profile ${name}`]),
  ];
  return (
    <>
      <Select label="Network" value={value.mode} set={(mode) => set({ ...value, mode })} options={options} />
      {value.mode === "rules" && (
        <>
          <Area label="Allow" value={value.allow} set={(allow) => set({ ...value, allow })} placeholder={"example.com:443 *.example.org"} rows={2} note="Hosts, *. and a host, addresses or networks, each with an optional :PORT." />
          <Area label="Deny" value={value.deny} set={(deny) => set({ ...value, deny })} placeholder="none" rows={2} />
        </>
      )}
    </>
  );
}

/** A secret for requests to a host. */
export interface CredentialChoice {
  host: string;
  header: string;
  placeholder: string;
  value: string;
}

/** An empty one. */
export const NO_CREDENTIAL: CredentialChoice = { host: "", header: "Authorization", placeholder: "", value: "" };

/** Fields of the API for a credential. */
export function credentialFields({ host, header, placeholder, value }: CredentialChoice): Record<string, string> {
  if (host.trim() === "" || value === "") {
    throw new IsoletError(0, "bad_field", "a credential needs a host and a value", "fill in both, or remove the credential");
  }
  const fields: Record<string, string> = { host: host.trim(), value };
  if (header.trim()) fields["header"] = header.trim();
  if (placeholder.trim()) fields["placeholder"] = placeholder.trim();
  return fields;
}

/** Inputs of one credential. */
export function CredentialFields(props: { value: CredentialChoice; set: (value: CredentialChoice) => void; first?: boolean; remove?: () => void }): JSX.Element {
  const { value, set } = props;
  const one = (name: keyof CredentialChoice) => (text: string) => set({ ...value, [name]: text });
  return (
    <fieldset class="group">
      <legend>Credential</legend>
      <div class="fields">
        <Field label="Host" value={value.host} set={one("host")} placeholder="api.example.com" mono {...(props.first ? { first: true } : {})} />
        <Field label="Value" value={value.value} set={one("value")} type="password" placeholder="Bearer …" mono />
        <Field label="Header" value={value.header} set={one("header")} placeholder="none" mono />
        <Field label="Placeholder" value={value.placeholder} set={one("placeholder")} placeholder="none" mono />
      </div>
      {props.remove && (
        <Button kind="quiet" onClick={props.remove}>
          Remove credential
        </Button>
      )}
    </fieldset>
  );
}
