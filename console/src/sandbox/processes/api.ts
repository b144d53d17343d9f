/** Requests about the background processes of a sandbox. */

import { api, at } from "../../lib/api";

/** A background process. */
export interface ProcessInfo {
  id: string;
  session: string | null;
  status: "running" | "exited" | "killed" | "lost";
  command: string;
  pid: number | null;
  exit_code: number | null;
  signal: number | null;
  timed_out: boolean;
  oom: boolean;
  /** Something that it started still runs. */
  remains: boolean;
  stdin: boolean;
  started_at_ms: number;
  ended_at_ms: number | null;
  duration_ms: number | null;
  stdout_bytes: number;
  stderr_bytes: number;
}

/** Read all processes, the newest first. */
export async function listProcesses(sandbox: string, signal?: AbortSignal): Promise<ProcessInfo[]> {
  const all = await api().json<ProcessInfo[]>(at(sandbox, "processes"), { signal });
  return all.sort((a, b) => b.started_at_ms - a.started_at_ms);
}

/** How a process ended, or that it runs. */
export function outcome(of: ProcessInfo): { text: string; bad: boolean } {
  if (of.status === "running") return { text: "running", bad: false };
  if (of.status === "lost") return { text: "lost", bad: true };
  if (of.oom) return { text: "out of memory", bad: true };
  if (of.timed_out) return { text: "timed out", bad: true };
  if (of.signal !== null) return { text: `signal ${of.signal}`, bad: true };
  return { text: `exit code ${of.exit_code ?? "?"}`, bad: of.exit_code !== 0 };
}
