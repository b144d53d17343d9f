/** A process's log as a stream that survives lost connections. */

import type { Isolet } from "./client.js";
import { IsoletError } from "./error.js";
import type { FollowOptions, LogEvent, ProcessView } from "./processes.js";
import { events } from "./sse.js";

/** Reconnect attempts in a row, and the delays between them. */
const ATTEMPTS_MAX = 10;
const RETRY_DELAY_MS = 100;
const RETRY_DELAY_MS_MAX = 3_000;

/** Stream the log at `path` until the process ends. Continues at the same byte after a lost connection. */
export async function* follow(
  client: Isolet,
  processId: string,
  path: () => Promise<string>,
  options: FollowOptions,
): AsyncGenerator<LogEvent> {
  const decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() };
  let position: string | undefined;
  for (let attempts = 0; ; attempts++) {
    const headers: Record<string, string> = { accept: "text/event-stream; encoding=base64" };
    if (position !== undefined) headers["last-event-id"] = position;
    try {
      const since = options.since === undefined ? "" : `?since=${options.since}`;
      const response = await client.send((await path()) + since, { headers, signal: options.signal });
      for await (const { event, data, id } of events(response.body!)) {
        const value = JSON.parse(data) as Record<string, never>;
        if (event === "error") throw new IsoletError(response.status, value["error"]!, value["message"]!);
        attempts = 0;
        position = id;
        const at = { processId, position: Number(id) };
        if (event === "stdout" || event === "stderr") {
          const bytes = Uint8Array.from(atob(value["data_b64"]!), (char) => char.charCodeAt(0));
          const text = decoders[event].decode(bytes, { stream: true });
          if (text !== "") yield { type: event, data: text, ...at };
        } else if (event === "gap") {
          yield { type: "gap", data: "", missed: value["to"]! - value["from"]!, ...at };
        } else if (event === "exit") {
          for (const stream of ["stdout", "stderr"] as const) {
            const rest = decoders[stream].decode();
            if (rest !== "") yield { type: stream, data: rest, ...at };
          }
          const exitCode = (value as unknown as ProcessView).exit_code ?? -1;
          return yield { type: "exit", data: "", exitCode, ...at };
        }
      }
    } catch (error) {
      const refused = error instanceof IsoletError && error.status !== 0 && error.status < 500;
      if (refused && error.code !== "stopping") throw error;
      if (options.signal?.aborted || attempts >= ATTEMPTS_MAX) throw error;
    }
    if (attempts >= ATTEMPTS_MAX) throw new IsoletError(0, "cut", "the connection was lost before the process ended");
    const pause = Math.min(RETRY_DELAY_MS * 2 ** attempts, RETRY_DELAY_MS_MAX);
    await new Promise((wake) => setTimeout(wake, pause));
  }
}
