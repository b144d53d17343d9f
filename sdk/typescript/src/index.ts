/** Sandboxes with shells that stay. */

export {
  CodeResult,
  type CodeContext,
  type CodeEvent,
  type CodeLanguage,
  type CreateContextOptions,
  type Execution,
  type ExecutionEnd,
  type ExecutionError,
  type OutputMessage,
  type RunCodeOptions,
} from "./code.js";
export { Isolet, type Call, type ClientOptions } from "./client.js";
export { IsoletError } from "./error.js";
export type { ExecOptions, ExecResult, LostState } from "./exec.js";
export { Listing, type FileInfo } from "./files.js";
export { events, type ServerEvent } from "./sse.js";
export type { Reconnect } from "./backoff.js";
export type {
  TerminalAttached,
  TerminalClient,
  TerminalExit,
  TerminalSize,
  TerminalSnapshot,
} from "./frames.js";
export {
  Process,
  type FollowOptions,
  type FoundLine,
  type LogEvent,
  type ProcessLogs,
  type ProcessOptions,
  type ProcessStatus,
  type ProcessView,
  type WaitForPortOptions,
} from "./processes.js";
export type { ExposedPort, ExposeOptions, ListeningPort, PortLink, PortRequest } from "./ports.js";
export { getSandbox, Sandbox, type SandboxOptions } from "./sandbox.js";
export { ExecutionSession, type FileAccess, type SessionOptions } from "./session.js";
export { Shell, ShellCommand } from "./shell.js";
export type {
  ShellClosed,
  ShellConnection,
  ShellEvents,
  ShellOptions,
  ShellResult,
  ShellRunOptions,
} from "./shell-options.js";
export { openTerminal, Terminal } from "./terminal.js";
export type { TerminalEvents, TerminalOptions, TerminalState } from "./terminal-options.js";
export type { Recording, TerminalInfo, Ticket, TicketOptions } from "./terminals.js";
