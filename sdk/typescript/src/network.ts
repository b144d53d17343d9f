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

/** A sandbox's network, as its record has it. */
export interface NetworkInfo {
  mode: "none" | "open" | "rules";
  allow: string[];
  deny: string[];
  /** The profile that its rules were taken from, unless they were changed since. */
  profile?: string;
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
  };
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
}
