/** The audit log: what was done to a tenant's sandboxes. */

import type { Transport } from "./transport.js";

/** One entry: who did what, from where and when, or what the server did by itself. */
export interface AuditEntry {
  /** Its number in the tenant's log, from 1, without gaps. */
  seq: number;
  at: Date;
  /** `null`: done to no sandbox, or to several. */
  sandbox: string | null;
  /** As `sandbox.create`, `exec.start` or `sandbox.slept`. */
  event: string;
  /** Who (`key`), from where (`from`), which call, and what its path names. */
  data: Record<string, unknown>;
  /** The line as it was signed: `isolet audit verify` takes a file of these. */
  line: string;
}

interface Sent {
  seq: number;
  ts: string;
  sandbox_id: string | null;
  event: string;
  data: Record<string, unknown>;
}

/** The entries that are held, the oldest first. */
export async function* entries(
  client: Transport,
  options: { sandbox?: string; signal?: AbortSignal },
): AsyncGenerator<AuditEntry> {
  const query = options.sandbox === undefined ? "" : `?sandbox=${encodeURIComponent(options.sandbox)}`;
  const response = await client.send(`/v1/audit${query}`, { signal: options.signal });
  for await (const line of lines(response.body!)) {
    const { seq, ts, sandbox_id, event, data } = JSON.parse(line) as Sent;
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
