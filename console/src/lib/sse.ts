/** Streams of server-sent events that survive lost connections. */

import { events, IsoletError } from "@isolet/sdk";
import { api } from "./api";

/** An event of a stream. */
export interface StreamEvent {
  kind: string;
  data: Record<string, unknown>;
}

const RETRY_MS = [300, 1000, 2000, 4000];

/**
 * Follow a stream. After a lost connection it continues behind the last event.
 *
 * @param path URL path.
 * @param options `accept`: media type; `from`: id to start behind; `last`: kind of the event that ends the
 *   stream; `lost`: called when the connection was lost, and `back` when it is back.
 * @throws {@link IsoletError} if the server refuses.
 */
export async function* followStream(
  path: string,
  options: { signal: AbortSignal; accept?: string; from?: string; last?: string; lost?: () => void; back?: () => void },
): AsyncGenerator<StreamEvent> {
  let position = options.from;
  for (let attempts = 0; ; attempts++) {
    const headers: Record<string, string> = { accept: options.accept ?? "text/event-stream" };
    if (position !== undefined) headers["last-event-id"] = position;
    try {
      const response = await api().send(path, { headers, signal: options.signal });
      options.back?.();
      for await (const { event, data, id } of events(response.body!)) {
        const fields = JSON.parse(data) as Record<string, unknown>;
        if (event === "error") throw new IsoletError(503, String(fields["error"]), String(fields["message"]), String(fields["hint"] ?? ""));
        attempts = 0;
        if (id !== undefined && id !== "") position = id;
        yield { kind: event, data: fields };
        if (event === options.last) return;
      }
    } catch (error) {
      if (options.signal.aborted) return;
      if (error instanceof IsoletError && error.status !== 0 && error.status < 500) throw error;
    }
    if (options.signal.aborted) return;
    options.lost?.();
    await new Promise((wake) => setTimeout(wake, RETRY_MS[Math.min(attempts, RETRY_MS.length - 1)]));
  }
}
