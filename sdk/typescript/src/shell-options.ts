/** How a shell is opened, how its commands run, and what it tells. */

import type { Reconnect } from "./backoff.js";
import type { IsoletError } from "./error.js";
import type { ExecResult } from "./exec.js";

/** How a shell is opened. */
export interface ShellOptions {
  /** The shell of this session, which outlives the connection; without it the shell is this client's
   *  own, and ends when it is closed. */
  sessionId?: string;
  /** Come back when the connection is lost (true unless told), and how. */
  reconnect?: boolean | Reconnect;
}

/** How a command of a shell is to run. */
export interface ShellRunOptions {
  /** Ends the command after so many ms; the shell stays. 0 never. */
  timeout?: number;
  /** For this command alone. */
  cwd?: string;
  /** For this command alone; `undefined` unsets a name. */
  env?: Record<string, string | undefined>;
  /** Its standard input; end of file at once otherwise. `true`: it follows, by `write`. */
  stdin?: string | Uint8Array | true;
  /** Standard error goes into standard output. */
  merge?: boolean;
  /** Each piece of output as it is written; no character is ever split. */
  onOutput?: (stream: "stdout" | "stderr", data: string) => void;
  /** Aborting it cancels the command: its result says `cancelled`, and the shell stays. */
  signal?: AbortSignal;
}

/** How a command of a shell ended, and what it said: at most 8 MiB of each stream. */
export interface ShellResult extends ExecResult {
  /** Somebody cancelled it. */
  cancelled: boolean;
  /** The number of the signal that ended it. */
  signal?: number;
  /** Its shell was opened in place of one that had ended. */
  fresh: boolean;
}

/** How a shell ended. */
export interface ShellClosed {
  /** Its exit code. */
  code?: number;
  /** The number of the signal that ended it. */
  signal?: number;
  cause: string;
}

/** `connecting` for the first time; `reconnecting` after a connection was lost; `closed` for good. */
export type ShellConnection = "connecting" | "connected" | "reconnecting" | "closed";

/** What a shell tells its listeners. */
export interface ShellEvents {
  /** Its bash has ended: at once, also when no command runs. A session's next command gets a fresh one. */
  closed: [closed: ShellClosed];
  /** Output of background jobs, whose command has ended. */
  background: [stream: "stdout" | "stderr", data: string];
  state: [state: ShellConnection];
  /** The connection is lost for good: the state is `closed`. */
  error: [error: IsoletError];
}
