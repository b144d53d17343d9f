/** What happens to sandboxes, as it happens. */

import { IsoletError } from "./error.js";
import type { Denied } from "./network.js";
import { events } from "./sse.js";
import type { Transport } from "./transport.js";

/** Attempts to come back in a row, and the pauses between them, in ms. */
const TRIES_MAX = 16;
const PAUSE_MS = 100;
const PAUSE_MS_MAX = 5_000;

/** Where to begin, and what ends it. */
export interface EventsOptions {
  /** Go on behind the event of this id; 0: with all that is held (the last 4,096). From now on unless
   *  told. */
  after?: number;
  signal?: AbortSignal;
}

/** Something that happened to a sandbox. */
export interface SandboxEvent {
  /** `created`, `running`, `sleeping`, `woke`, `destroyed`, `unreachable`, `failed`, `session_created`,
   *  `session_deleted`, `command_started`, `command_exited`, `process_started`, `process_exited`,
   *  `terminal_opened`, `terminal_ended`, `port_opened`, `port_closed`, `network_changed`,
   *  `network_denied`, or `gap`: events that are no longer held, or that a lost connection may have
   *  taken. */
  type: string;
  /** Grows; give it back as `after`. `undefined` of a `gap`. */
  id: number | undefined;
  at: Date | undefined;
  sandbox: string | undefined;
  session: string | undefined;
  /** The id of a command; empty for a program without a shell. */
  command: string | undefined;
  /** Of `process_started` and `process_exited`. */
  process: string | undefined;
  /** Of `command_exited` and `process_exited`. */
  code: number | undefined;
  /** Of `process_exited`, where a signal ended it. */
  signal: number | undefined;
  /** Of `unreachable` and `failed`. */
  cause: string | undefined;
  /** Of `port_opened` and `port_closed`. */
  port: number | undefined;
  /** Of `network_changed`: `none`, `open` or `rules`. */
  network: string | undefined;
  /** Of `network_denied`. */
  denied: Denied | undefined;
  /** Of a `gap`: from and to, where they are known. */
  missed: [from: number, to: number] | undefined;
}

type Sent = { [name in keyof Omit<SandboxEvent, "at" | "missed" | "denied">]?: SandboxEvent[name] | null } & {
  at_ms?: number;
  from?: number;
  to?: number;
} & Partial<Denied>;

function denied({ host = "", port = null, protocol = "", rule = "", times = 1 }: Partial<Denied>): Denied {
  return { host, port, protocol, rule, times };
}

function told(type: string, sent: Sent): SandboxEvent {
  const { from, to, at_ms } = sent;
  return {
    type,
    id: sent.id ?? undefined,
    at: at_ms === undefined ? undefined : new Date(at_ms),
    sandbox: sent.sandbox ?? undefined,
    session: sent.session ?? undefined,
    command: sent.command ?? undefined,
    process: sent.process ?? undefined,
    code: sent.code ?? undefined,
    signal: sent.signal ?? undefined,
    cause: sent.cause ?? undefined,
    port: sent.port ?? undefined,
    network: sent.network ?? undefined,
    denied: type === "network_denied" ? denied(sent) : undefined,
    missed: from === undefined || to === undefined ? undefined : [from, to],
  };
}

/** The events of the stream at `path`, up to the one of the type `last`; taken up behind the last one after
 *  a lost connection. Throws when the server has not come back for a minute, and when `signal` says so. */
export async function* following(
  client: Transport,
  path: string,
  { after, signal }: EventsOptions,
  last?: string,
): AsyncGenerator<SandboxEvent> {
  let blind = false;
  for (let tries = 0; ; tries++) {
    try {
      const headers: Record<string, string> = { accept: "text/event-stream" };
      if (after !== undefined) headers["last-event-id"] = String(after);
      const response = await client.send(path, { headers, signal });
      // Before the first event nothing says from where to go on.
      if (blind) yield told("gap", {});
      blind = false;
      for await (const { event, data } of events(response.body!)) {
        const sent = JSON.parse(data) as Sent & { error?: string; message?: string };
        if (event === "error") {
          if (sent.error === "unauthorized") throw new IsoletError(401, sent.error, sent.message ?? "");
          break;
        }
        tries = 0;
        after = sent.id ?? after;
        yield told(event, sent);
        if (event === last) return;
      }
    } catch (error) {
      const refused = error instanceof IsoletError && error.status !== 0 && error.status < 500;
      if (refused || signal?.aborted || tries >= TRIES_MAX) throw error;
    }
    if (tries >= TRIES_MAX) throw new IsoletError(0, "cut", "the server does not come back");
    blind = after === undefined;
    await new Promise((wake) => setTimeout(wake, Math.min(PAUSE_MS * 2 ** tries, PAUSE_MS_MAX)));
  }
}
