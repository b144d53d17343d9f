/** Sandboxes with shells that stay. */

export { Isolet, type Call, type ClientOptions } from "./client.js";
export { IsoletError } from "./error.js";
export type { ExecOptions, ExecResult, LostState } from "./exec.js";
export { Listing, type FileInfo } from "./files.js";
export { getSandbox, Sandbox, type SandboxOptions } from "./sandbox.js";
export { ExecutionSession, type FileAccess, type SessionOptions } from "./session.js";
