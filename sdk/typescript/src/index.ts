/** Client for Isolet: sandboxes with persistent shells. */

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
export type { AuditEntry } from "./audit.js";
export { Isolet, type AccountUsage } from "./client.js";
export type { PortConnection } from "./dial.js";
export { IsoletError } from "./error.js";
export type { ExecEvent, ExecOptions, ExecResult, LostState } from "./exec.js";
export {
  Listing,
  type FileInfo,
  type FileRange,
  type ListFilesOptions,
  type ReadFileOptions,
  type SearchLine,
  type SearchOptions,
  type SearchResult,
  type ChangedFile,
  type ChangesOptions,
  type FileChanges,
  type WriteFileOptions,
} from "./file-types.js";
export type { GitCheckout, GitCheckoutOptions } from "./git.js";
export type { EventsOptions, SandboxEvent } from "./sandbox-events.js";
export type {
  Credential,
  CredentialInfo,
  Denied,
  Network,
  NetworkChange,
  NetworkInfo,
  NetworkRules,
} from "./network.js";
export type { CommitOptions, CommittedImage, ImageInfo, PrivateFile } from "./images.js";
export type { ApiKey, CreatedApiKey, CreateKeyOptions, CurrentApiKey } from "./keys.js";
export type {
  CreatedWebhook,
  CreateWebhookOptions,
  UpdateWebhookOptions,
  Webhook,
  WebhookDelivery,
  WebhookTest,
} from "./webhooks.js";
export type { DrainOptions, DrainProgress, FleetNode, NodeList } from "./nodes.js";
export type { Snapshot, SnapshotChange, SnapshotOptions } from "./snapshots.js";
export type { NetworkTraffic, RecoveredSandbox, RestoredSandbox, SandboxInfo, SandboxUsage, SessionInfo } from "./records.js";
export { events, type ServerEvent } from "./sse.js";
export type { ReconnectOptions } from "./backoff.js";
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
export { getSandbox, Sandbox } from "./sandbox.js";
export type { SandboxChange, SandboxOptions } from "./sandbox-options.js";
export { ExecutionSession, type FileAccess, type SessionChange, type SessionOptions } from "./session.js";
export { Shell, ShellCommand } from "./shell.js";
export { openShell } from "./open-shell.js";
export type {
  ShellClosed,
  ShellConnectionState,
  ShellEvents,
  ShellOptions,
  ShellResult,
  ShellRunOptions,
} from "./shell-options.js";
export { openTerminal, Terminal } from "./terminal.js";
export type { TerminalEvents, TerminalOptions, TerminalState } from "./terminal-options.js";
export type { Recording, TerminalInfo, Ticket, TicketOptions } from "./terminals.js";
export type { TenantSession, TenantSessionOptions } from "./tenant.js";
export { Transport, type Call, type ClientOptions } from "./transport.js";
export type { FileEvent, FileWatch, WatchOptions } from "./watch.js";
export type { BackupOptions, DirectoryBackup } from "./workspace.js";
