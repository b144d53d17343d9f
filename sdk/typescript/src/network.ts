/** Where a sandbox may connect to, and what it was refused. */

/**
 * Rules: each a host, `*.` and a host, an address, a network (`10.0.0.0/8`) or `*`, with or without
 * `:PORT`. `deny` goes before `allow`; what no rule allows is refused.
 */
export interface NetworkRules {
  allow?: string[];
  deny?: string[];
}

/** `"none"`: loopback alone. `"open"`: everything but what is closed to every sandbox. */
export type Network = "none" | "open" | NetworkRules;

/** A value that is put into a sandbox's requests to a host, from outside: its value never is inside.
 *  `header`, `placeholder` or both are needed. */
export interface Credential {
  /** The host, or `*.` and one; without `:PORT` it has it within TLS alone. */
  host: string;
  /** The header that is set. */
  header?: string;
  /** What stands for the value in headers that the sandbox sends. */
  placeholder?: string;
  /** The value. */
  value: string;
}

/** What is known of a credential: all but its value. */
export interface CredentialInfo {
  host: string;
  header?: string;
  placeholder?: string;
  /** Whether the network's rules let the host be reached. */
  allowed: boolean;
}

/** A sandbox's network, as its record has it. */
export interface NetworkInfo {
  mode: "none" | "open" | "rules";
  allow: string[];
  deny: string[];
  /** The profile that its rules were taken from, unless they were changed since. */
  profile?: string;
  /** What is put into its requests, where something is. */
  credentials?: CredentialInfo[];
}

/** Something that was refused. */
export interface Denied {
  /** The name, where one is known; else the address. */
  host: string;
  /** `null` of a name that was looked up, and of protocols without ports. */
  port: number | null;
  /** `tcp`, `udp`, `icmp`, `dns`, or a number of IP's. */
  protocol: string;
  /** The rule of `deny`; `default`: no rule allows it; else why it is closed to every sandbox:
   *  `host`, `private`, `link-local`, … */
  rule: string;
  /** How often. */
  times: number;
}

/** A change of a network; what is left out stays. */
export interface NetworkChange {
  /** In place of the one that is. */
  network?: Network;
  /** The rules of this profile in place of those that are. */
  networkProfile?: string;
  /** Also allowed: rules, or what a command's `denied` told. */
  allowAdd?: (string | Denied)[];
  /** Rules of `allow` that go. */
  allowRemove?: string[];
  /** Also refused. */
  denyAdd?: string[];
  /** Rules of `deny` that go. */
  denyRemove?: string[];
  /** Also put into its requests; for the same place instead of the one before. */
  credentialsAdd?: Credential[];
  /** Put in no longer: all of a host, or those with this header or placeholder. */
  credentialsRemove?: Pick<CredentialInfo, "host" | "header" | "placeholder">[];
}

/** A change as the server takes it. */
export function changed(change: NetworkChange): Record<string, unknown> {
  const fields = {
    network: change.network,
    network_profile: change.networkProfile,
    allow_add: change.allowAdd,
    allow_remove: change.allowRemove,
    deny_add: change.denyAdd,
    deny_remove: change.denyRemove,
    credentials_add: change.credentialsAdd,
    credentials_remove: change.credentialsRemove?.map(({ host, header, placeholder }) => ({ host, header, placeholder })),
  };
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
}
