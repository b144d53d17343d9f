/** How a terminal is attached, and what it tells. */

import type { Reconnect } from "./backoff.js";
import type { IsoletError } from "./error.js";
import type {
  TerminalAttached,
  TerminalClient,
  TerminalExit,
  TerminalSize,
  TerminalSnapshot,
} from "./frames.js";

/** How a terminal is attached. */
export interface TerminalOptions {
  /** Size of the window that shows it; 80 by 24 unless told. */
  cols?: number;
  rows?: number;
  /** What to run in place of bash, when the terminal is opened by this attach. */
  shell?: string;
  /** Its arguments. */
  args?: string[];
  /** `"view"`: look only. */
  mode?: "edit" | "view";
  /** How others see this client; at most 64 bytes. */
  name?: string;
  /** Record the terminal from here on. */
  record?: boolean;
  /** Come back when the connection is lost (true unless told), and how. */
  reconnect?: boolean | Reconnect;
}

/**
 * `connecting` for the first time; `connected`; `reconnecting` after a connection was lost;
 * `paused` while what was shown is not taken (see {@link Terminal.hold}); `closed` for good.
 */
export type TerminalState = "connecting" | "connected" | "reconnecting" | "paused" | "closed";

/** What a terminal tells its listeners. */
export interface TerminalEvents {
  /** Output, and the offset of its first byte among all that the terminal has shown. */
  data: [bytes: Uint8Array, offset: number];
  /** What stood is drawn; what follows is live. At each connect. */
  ready: [];
  /** The program has ended. The state is `closed` then. */
  exit: [exit: TerminalExit];
  /** Write these bytes to the screen as they are: output that was missed is not sent. */
  snapshot: [snapshot: TerminalSnapshot];
  /** First at each connect. `same`: it is the terminal of the connect before. */
  attached: [attached: TerminalAttached & { same: boolean }];
  /** The terminal has another size; what follows is drawn for it. */
  size: [size: TerminalSize];
  /** Who is attached, whenever it changes. */
  clients: [clients: TerminalClient[]];
  /** With `reconnecting`: the try that comes (from 1), and in how many ms. */
  state: [state: TerminalState, next?: { attempt: number; delayMs: number }];
  /** Something was refused, or the terminal was lost: then the state is `closed`. */
  error: [error: IsoletError];
}
