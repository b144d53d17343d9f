/** Events of sandboxes. */

import { IsoletError } from "./error.js";
import type { Denied } from "./network.js";
import { events } from "./sse.js";
import type { Transport } from "./transport.js";

/** Reconnect attempts in a row, and the delays between them. */
const ATTEMPTS_MAX = 16;
const RETRY_DELAY_MS = 100;
const RETRY_DELAY_MS_MAX = 5_000;

/** Where to start, and when to stop. */
export interface EventsOptions {
  /**
   * Continue after the event with this id; 0 starts with the oldest event that the server has (at most
   * 4,096). By default, only new events.
   */
  after?: number;
  /** Aborting it ends the stream. */
  signal?: AbortSignal;
}

/** An event of a sandbox. */
export interface SandboxEvent {
  /**
   * `created`, `running`, `paused`, `resumed`, `sleeping`, `woke`, `destroyed`, `unreachable`, `failed`,
   * `session_created`, `session_deleted`, `command_started`, `command_exited`, `process_started`, `process_exited`,
   * `terminal_opened`, `terminal_ended`, `port_opened`, `port_closed`, `snapshot_taken`, `snapshot_failed`, `restored`,
   * `network_changed`, `network_denied`,
   * or `gap`: events were missed, because the server no longer has them or because a connection broke.
   */
  type: string;
  /** Increases; pass it as `after` to continue. `undefined` for `gap`. */
  id: number | undefined;
  at: Date | undefined;
  sandbox: string | undefined;
  session: string | undefined;
  /** Command id; empty for a program that runs without a shell. */
  command: string | undefined;
  /** For `process_started` and `process_exited`. */
  process: string | undefined;
  /** Exit code, for `command_exited` and `process_exited`. */
  code: number | undefined;
  /** For `process_exited`, if a signal ended the process. */
  signal: number | undefined;
  /** Reason, for `unreachable`, `failed` and `snapshot_failed`. */
  cause: string | undefined;
  /** For `port_opened` and `port_closed`. */
  port: number | undefined;
  /** For `network_changed`: `none`, `open` or `rules`. */
  network: string | undefined;
  /** For `network_denied`. */
  denied: Denied | undefined;
  /** For `snapshot_taken` and `restored`: its id. */
  snapshot: string | undefined;
  /** For `snapshot_taken` and `snapshot_failed`: `schedule` or `destroy`. */
  trigger: string | undefined;
  /** For `gap`: first and last event id, if known. */
  missed: [from: number, to: number] | undefined;
}

type EventJson = { [name in keyof Omit<SandboxEvent, "at" | "missed" | "denied">]?: SandboxEvent[name] | null } & {
  at_ms?: number;
  from?: number;
  to?: number;
} & Partial<Denied>;

function denied({ host = "", port = null, protocol = "", rule = "", times = 1 }: Partial<Denied>): Denied {
  return { host, port, protocol, rule, times };
}

function sandboxEvent(type: string, json: EventJson): SandboxEvent {
  const { from, to, at_ms } = json;
  return {
    type,
    id: json.id ?? undefined,
    at: at_ms === undefined ? undefined : new Date(at_ms),
    sandbox: json.sandbox ?? undefined,
    session: json.session ?? undefined,
    command: json.command ?? undefined,
    process: json.process ?? undefined,
    code: json.code ?? undefined,
    signal: json.signal ?? undefined,
    cause: json.cause ?? undefined,
    port: json.port ?? undefined,
    network: json.network ?? undefined,
    snapshot: json.snapshot ?? undefined,
    trigger: json.trigger ?? undefined,
    denied: type === "network_denied" ? denied(json) : undefined,
    missed: from === undefined || to === undefined ? undefined : [from, to],
  };
}

/**
 * Stream the events at `path`, up to one of the type `lastType`. Reconnects after a lost connection and
 * continues after the last event.
 *
 * @throws {@link IsoletError} when the server is unreachable for a minute; the abort reason when `signal` is
 *   aborted.
 */
export async function* followEvents(
  client: Transport,
  path: string,
  { after, signal }: EventsOptions,
  lastType?: string,
): AsyncGenerator<SandboxEvent> {
  let mayHaveMissed = false;
  for (let attempts = 0; ; attempts++) {
    try {
      const headers: Record<string, string> = { accept: "text/event-stream" };
      if (after !== undefined) headers["last-event-id"] = String(after);
      const response = await client.send(path, { headers, signal });
      // Without a first event there is no id to continue from.
      if (mayHaveMissed) yield sandboxEvent("gap", {});
      mayHaveMissed = false;
      for await (const { event, data } of events(response.body!)) {
        const json = JSON.parse(data) as EventJson & { error?: string; message?: string };
        if (event === "error") {
          if (json.error === "unauthorized") throw new IsoletError(401, json.error, json.message ?? "");
          break;
        }
        attempts = 0;
        after = json.id ?? after;
        yield sandboxEvent(event, json);
        if (event === lastType) return;
      }
    } catch (error) {
      const refused = error instanceof IsoletError && error.status !== 0 && error.status < 500;
      if (refused || signal?.aborted || attempts >= ATTEMPTS_MAX) throw error;
    }
    if (attempts >= ATTEMPTS_MAX) throw new IsoletError(0, "cut", "the event stream was lost and the server is unreachable");
    mayHaveMissed = after === undefined;
    await new Promise((wake) => setTimeout(wake, Math.min(RETRY_DELAY_MS * 2 ** attempts, RETRY_DELAY_MS_MAX)));
  }
}
