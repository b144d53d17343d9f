/** Audit log of a tenant. */

import type { Transport } from "./transport.js";

/**
 * An entry of the audit log: an API call with its caller and time, or an action of the server itself, such as
 * putting an idle sandbox to sleep.
 */
export interface AuditEntry {
  /** Position in the tenant's log: 1, 2, 3, … without gaps. */
  seq: number;
  at: Date;
  /** Sandbox id; `null` when the call concerned no sandbox or several. */
  sandbox: string | null;
  /** For example `sandbox.create`, `exec.start` or `sandbox.slept`. */
  event: string;
  /** Caller (`key`), address (`from`), route, and ids in the path. */
  data: Record<string, unknown>;
  /** The signed line. `isolet audit verify` checks a file of them. */
  line: string;
}

interface EntryJson {
  seq: number;
  ts: string;
  sandbox_id: string | null;
  event: string;
  data: Record<string, unknown>;
}

/** Entries of the log, oldest first. */
export async function* auditEntries(
  client: Transport,
  options: { sandbox?: string; signal?: AbortSignal },
): AsyncGenerator<AuditEntry> {
  const query = options.sandbox === undefined ? "" : `?sandbox=${encodeURIComponent(options.sandbox)}`;
  const response = await client.send(`/v1/audit${query}`, { signal: options.signal });
  for await (const line of lines(response.body!)) {
    const { seq, ts, sandbox_id, event, data } = JSON.parse(line) as EntryJson;
    yield { seq, at: new Date(ts), sandbox: sandbox_id, event, data, line };
  }
}

async function* lines(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  const reader = body.getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const parts = (rest + decoder.decode(value, { stream: true })).split("\n");
      rest = parts.pop()!;
      yield* parts;
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}
