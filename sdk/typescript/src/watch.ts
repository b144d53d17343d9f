/** What happens in a directory, as it happens. */

import { IsoletError } from "./error.js";
import { events, type ServerEvent } from "./sse.js";
import type { Transport } from "./transport.js";

/** What is watched, and what ends it. */
export interface WatchOptions {
  /** Also all directories below it, at most 8,192. */
  recursive?: boolean;
  signal?: AbortSignal;
}

/** Something that happened in a watched directory. */
export interface FileEvent {
  /** Beside what happened to files: `overflow` (more has happened than could be told: look anew),
   *  `unwatched` (a directory beyond the 8,192 of a watch), and `gone`, the last one: the watched
   *  directory has ended or has another name. */
  type: "created" | "modified" | "moved" | "deleted" | "overflow" | "unwatched" | "gone";
  /** From the root of the sandbox on. */
  path: string;
  /** Of what was moved: its new path. */
  to: string | undefined;
  directory: boolean;
}

/** A watch that is in force; it ends after `gone`, with {@link FileWatch.close}, or when its loop is left. */
export class FileWatch implements AsyncIterable<FileEvent> {
  /** @param directories how many are watched. */
  constructor(
    readonly directories: number,
    private readonly rest: AsyncGenerator<ServerEvent>,
    private readonly end: () => void,
    private readonly signal?: AbortSignal,
  ) {}

  /** @throws `cut`: the connection was lost; watch again, and look at what is there. */
  async *[Symbol.asyncIterator](): AsyncGenerator<FileEvent> {
    try {
      for await (const { event, data } of this.rest) {
        const told = JSON.parse(data) as Partial<FileEvent> & Partial<Fault>;
        if (event === "error") throw fault(told);
        const { path = "", to, directory = false } = told;
        yield { type: event as FileEvent["type"], path, to, directory };
        if (event === "gone") return;
      }
      if (!this.#closed) throw lost();
    } catch (error) {
      if (this.#closed) return;
      if (error instanceof IsoletError || this.signal?.aborted) throw error;
      throw lost(error);
    } finally {
      this.close();
    }
  }

  #closed = false;

  /** Ends it. */
  close(): void {
    this.#closed = true;
    this.end();
  }
}

interface Fault {
  error: string;
  message: string;
  hint: string;
}

function lost(cause?: unknown): IsoletError {
  return new IsoletError(0, "cut", "the connection of a watch was lost", "watch again", { cause });
}

function fault(told: Partial<Fault>): IsoletError {
  return new IsoletError(0, told.error ?? "unknown", told.message ?? "", told.hint);
}

/** Begins a watch at a path of the API, and waits until it is in force. */
export async function watch(client: Transport, at: string, signal?: AbortSignal): Promise<FileWatch> {
  const ends = new AbortController();
  const stop = (): void => ends.abort(signal?.reason);
  if (signal?.aborted) stop();
  signal?.addEventListener("abort", stop, { once: true });
  const headers = { accept: "text/event-stream" };
  const response = await client.send(at, { headers, signal: ends.signal });
  const all = events(response.body!);
  const { value, done } = await all.next();
  if (done) throw lost();
  const told = JSON.parse(value.data) as { directories?: number } & Partial<Fault>;
  if (value.event === "error") throw fault(told);
  const end = (): void => {
    signal?.removeEventListener("abort", stop);
    ends.abort();
  };
  return new FileWatch(told.directories ?? 0, all, end, signal);
}
