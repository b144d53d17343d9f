/** Options and events of terminals. */

import type { ReconnectOptions } from "./backoff.js";
import type { IsoletError } from "./error.js";
import type {
  TerminalAttached,
  TerminalClient,
  TerminalExit,
  TerminalSize,
  TerminalSnapshot,
} from "./frames.js";

/** Options for attaching to a terminal. */
export interface TerminalOptions {
  /** Width of the client's window; 80 by default. */
  cols?: number;
  /** Height of the client's window; 24 by default. */
  rows?: number;
  /** Program to run instead of bash, if this attach opens the terminal. */
  shell?: string;
  /** Arguments of the program. */
  args?: string[];
  /** `"view"` watches without input; `"edit"` by default. */
  mode?: "edit" | "view";
  /** Name of this client that other clients see, at most 64 bytes. */
  name?: string;
  /** Start a recording. */
  record?: boolean;
  /** Reconnect after a lost connection; true by default. */
  reconnect?: boolean | ReconnectOptions;
}

/**
 * `connecting` for the first time; `connected`; `reconnecting` after a lost connection; `paused` while output
 * is not accepted (see {@link Terminal.pause}); `closed` for good.
 */
export type TerminalState = "connecting" | "connected" | "reconnecting" | "paused" | "closed";

/** Events of a terminal. */
export interface TerminalEvents {
  /** Output, and the position of its first byte in the terminal's whole output. */
  data: [bytes: Uint8Array, offset: number];
  /** The initial screen is complete; later output is live. After each connect. */
  ready: [];
  /** The program has exited. The state is `closed`. */
  exit: [exit: TerminalExit];
  /** Write these bytes to the screen: they replace missed output. */
  snapshot: [snapshot: TerminalSnapshot];
  /** First event after each connect. `reconnected`: it is the same terminal as before. */
  attached: [attached: TerminalAttached & { reconnected: boolean }];
  /** The terminal was resized; later output is formatted for the new size. */
  size: [size: TerminalSize];
  /** The list of attached clients changed. */
  clients: [clients: TerminalClient[]];
  /** The state changed. With `reconnecting`: number of the next attempt, from 1, and its delay. */
  state: [state: TerminalState, next?: { attempt: number; delayMs: number }];
  /** The server refused a request, or the terminal was lost. In the latter case, the state is `closed`. */
  error: [error: IsoletError];
}
