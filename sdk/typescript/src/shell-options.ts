/** Options, results and events of shells. */

import type { ReconnectOptions } from "./backoff.js";
import type { IsoletError } from "./error.js";
import type { ExecResult } from "./exec.js";

/** Options for opening a shell. */
export interface ShellOptions {
  /**
   * Attach to this session's shell, which outlives the connection. By default, the shell is private to this
   * client and ends when it is closed.
   */
  sessionId?: string;
  /** Reconnect after a lost connection; true by default. */
  reconnect?: boolean | ReconnectOptions;
}

/** Options of a shell's command. */
export interface ShellRunOptions {
  /** Time until the command is ended, in milliseconds; the shell stays. 0 disables it. */
  timeout?: number;
  /** Working directory of this command only. */
  cwd?: string;
  /** Environment of this command only; `undefined` unsets a variable. */
  env?: Record<string, string | undefined>;
  /** Standard input; empty by default. `true` leaves it open for {@link ShellCommand.write}. */
  stdin?: string | Uint8Array | true;
  /** Redirect standard error to standard output. */
  merge?: boolean;
  /** Called for each piece of output; never splits a character. */
  onOutput?: (stream: "stdout" | "stderr", data: string) => void;
  /** Aborting it cancels the command. Its result has `cancelled`, and the shell stays. */
  signal?: AbortSignal;
}

/** Exit status and output of a command, at most 8 MiB of each stream. */
export interface ShellResult extends ExecResult {
  /** A client cancelled the command. */
  cancelled: boolean;
  /** Number of the signal that ended it. */
  signal?: number;
  /** Ran in a new shell, because the previous one had exited. */
  fresh: boolean;
}

/** How a shell ended. */
export interface ShellClosed {
  /** Exit code. */
  code?: number;
  /** Number of the signal that ended it. */
  signal?: number;
  /** Reason in words. */
  cause: string;
}

/** `connecting` for the first time; `reconnecting` after a lost connection; `closed` for good. */
export type ShellConnectionState = "connecting" | "connected" | "reconnecting" | "closed";

/** Events of a shell. */
export interface ShellEvents {
  /** The bash has exited, possibly while no command was running. The next command of a session gets a new one. */
  closed: [closed: ShellClosed];
  /** Output of background jobs, after the end of their command. */
  background: [stream: "stdout" | "stderr", data: string];
  /** The state of the connection changed. */
  state: [state: ShellConnectionState];
  /** The connection is lost for good: the state is `closed`. */
  error: [error: IsoletError];
}
