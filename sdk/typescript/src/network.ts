/** Network rules of a sandbox, and denied connections. */

/**
 * Destinations that a sandbox may connect to: everything in `allow` that is not in `deny`. A rule is a host,
 * `*.` plus a host, an IP address, a network such as `10.0.0.0/8`, or `*`; each may end in `:PORT`.
 *
 * @example
 * ```ts
 * const rules: NetworkRules = { allow: ["*.example.com:443"] };
 * ```
 */
export interface NetworkRules {
  allow?: string[];
  deny?: string[];
}

/** `"none"`: loopback only. `"open"`: all destinations except those closed to every sandbox. */
export type Network = "none" | "open" | NetworkRules;

/**
 * A secret that the egress proxy injects into a sandbox's requests to a host. The value is never visible
 * inside the sandbox. Set `header`, `placeholder` or both.
 */
export interface Credential {
  /** Host, or `*.` plus a host. Without `:PORT`, the proxy injects into TLS connections only. */
  host: string;
  /** Header that the proxy sets to the value. */
  header?: string;
  /** Text that the proxy replaces with the value in headers that the sandbox sends. */
  placeholder?: string;
  /** The secret. */
  value: string;
}

/** An injected credential, without its value. */
export interface CredentialInfo {
  host: string;
  header?: string;
  placeholder?: string;
  /** The network rules allow the host. */
  allowed: boolean;
}

/** A sandbox's network configuration. */
export interface NetworkInfo {
  mode: "none" | "open" | "rules";
  allow: string[];
  deny: string[];
  /** Profile that the rules come from; absent after a change. */
  profile?: string;
  /** Injected credentials, without values. */
  credentials?: CredentialInfo[];
}

/** Connections or DNS lookups that the network rules denied. */
export interface Denied {
  /** Host name if known, else the IP address. */
  host: string;
  /** `null` for DNS lookups and for protocols without ports. */
  port: number | null;
  /** `tcp`, `udp`, `icmp`, `dns`, or an IP protocol number. */
  protocol: string;
  /**
   * The matching `deny` rule; `default` if no rule allows it; otherwise the reason why no sandbox may
   * connect: `host`, `private`, `link-local`, …
   */
  rule: string;
  /** Number of attempts. */
  times: number;
}

/** A change of network rules. Omitted fields change nothing. */
export interface NetworkChange {
  /** Replaces the current configuration. */
  network?: Network;
  /** Replaces the rules with those of a network profile. */
  networkProfile?: string;
  /** Rules to allow, or entries of a command's `denied`. */
  allowAdd?: (string | Denied)[];
  /** Rules to remove from `allow`. */
  allowRemove?: string[];
  /** Rules to deny. */
  denyAdd?: string[];
  /** Rules to remove from `deny`. */
  denyRemove?: string[];
  /** Credentials to inject; each replaces an existing one for the same host and header. */
  credentialsAdd?: Credential[];
  /** Credentials to remove: all of a host, or those with this header or placeholder. */
  credentialsRemove?: Pick<CredentialInfo, "host" | "header" | "placeholder">[];
}

/** JSON of a change. */
export function networkChangeToJson(change: NetworkChange): Record<string, unknown> {
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
