/** Nodes of a fleet, and drains. */

/** A node of the fleet. */
export interface FleetNode {
  name: string;
  region: string;
  /** A sandbox can demand them. */
  labels: Record<string, string>;
  state: "ready" | "suspect" | "starting" | "stopping" | "lost" | "dead";
  /** An operator has excluded it from placement. */
  cordoned: boolean;
  /** Address, version, capacity and load as the server sends them; only with a key of the tenant `default`. */
  details?: Record<string, unknown>;
  /** Sandboxes that it owns; only from `getNode` with a key of the tenant `default`. */
  owned?: Record<string, unknown>;
}

/** The nodes of the fleet, sorted by name. */
export interface NodeList {
  /** Name of the node that answered. */
  here: string;
  /** If false, that node has lost etcd, and the nodes are those that it knew before. */
  isCurrent: boolean;
  nodes: FleetNode[];
}

/** How far a drain is. */
export interface DrainProgress {
  node: string;
  /** The drain still runs. */
  running: boolean;
  /** Sandboxes that the node had when the drain began. */
  total: number;
  /** Sandboxes that were moved to another node. */
  moved: number;
  /** Sandboxes that slept, and are only in the object store now. */
  stored: number;
  /** Sandboxes that are still on the node. */
  remaining: number;
  /** Those that could not be moved, the first 100: `sandbox` is `TENANT/ID`. */
  left: { sandbox: string; code: string; reason: string }[];
}

/** Options of a drain. */
export interface DrainOptions {
  /** Time after which no further move begins, in seconds or as text such as `"10m"`. */
  timeout?: string | number;
  /** Called with the progress about once a second. */
  onProgress?: (progress: DrainProgress) => void;
}

/** Time between two reads of a drain's progress, in milliseconds. */
export const DRAIN_POLL_MS = 1000;

/** URL path of a node. */
export function nodePath(name: string): string {
  return `/v1/nodes/${encodeURIComponent(name)}`;
}
