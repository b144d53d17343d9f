/** Watching directories for changes. */

import { IsoletError } from "./error.js";
import { events, type ServerEvent } from "./sse.js";
import type { Transport } from "./transport.js";

/** Options of a watch. */
export interface WatchOptions {
  /** Include subdirectories, at most 8,192 directories. */
  recursive?: boolean;
  /**
   * Report only changes that match one of these patterns, at most 16. `*.ts` matches names, `src/**\/*.ts`
   * matches paths relative to the directory.
   */
  include?: string[];
  /** Do not report changes that match one of these patterns, or that are below a directory that does. */
  exclude?: string[];
  /** Aborting it ends the watch. */
  signal?: AbortSignal;
}

/** A change in a watched directory. */
export interface FileEvent {
  /**
   * Besides changes: `overflow` (changes were lost: list the directory again), `unwatched` (the limit of
   * 8,192 watched directories was exceeded), and `gone`, the last event: the watched directory was deleted or
   * moved.
   */
  type: "created" | "modified" | "moved" | "deleted" | "overflow" | "unwatched" | "gone";
  /** Absolute path in the sandbox. */
  path: string;
  /** New path, for `moved`. */
  to: string | undefined;
  /** The path is a directory. */
  directory: boolean;
}

/** An active watch. It ends after `gone`, with {@link FileWatch.close}, or when its loop is left. */
export class FileWatch implements AsyncIterable<FileEvent> {
  /** @param directories number of watched directories. */
  constructor(
    readonly directories: number,
    private readonly events: AsyncGenerator<ServerEvent>,
    private readonly end: () => void,
    private readonly signal?: AbortSignal,
  ) {}

  /**
   * @throws {@link IsoletError} `cut`: the connection was lost. Watch again, and list the directory to find
   *   missed changes.
   */
  async *[Symbol.asyncIterator](): AsyncGenerator<FileEvent> {
    try {
      for await (const { event, data } of this.events) {
        const body = JSON.parse(data) as Partial<FileEvent> & Partial<ErrorJson>;
        if (event === "error") throw errorFromJson(body);
        const { path = "", to, directory = false } = body;
        yield { type: event as FileEvent["type"], path, to, directory };
        if (event === "gone") return;
      }
      if (!this.#closed) throw connectionLost();
    } catch (error) {
      if (this.#closed) return;
      if (error instanceof IsoletError || this.signal?.aborted) throw error;
      throw connectionLost(error);
    } finally {
      this.close();
    }
  }

  #closed = false;

  /** End the watch. */
  close(): void {
    this.#closed = true;
    this.end();
  }
}

interface ErrorJson {
  error: string;
  message: string;
  hint: string;
}

function connectionLost(cause?: unknown): IsoletError {
  return new IsoletError(0, "cut", "the connection of a watch was lost", "watch again, and list the directory", { cause });
}

function errorFromJson(body: Partial<ErrorJson>): IsoletError {
  return new IsoletError(0, body.error ?? "unknown", body.message ?? "", body.hint);
}

/** Start a watch at a URL path, and wait until it is active. */
export async function watch(client: Transport, at: string, signal?: AbortSignal): Promise<FileWatch> {
  const abort = new AbortController();
  const stop = (): void => abort.abort(signal?.reason);
  if (signal?.aborted) stop();
  signal?.addEventListener("abort", stop, { once: true });
  const headers = { accept: "text/event-stream" };
  const response = await client.send(at, { headers, signal: abort.signal });
  const all = events(response.body!);
  const { value, done } = await all.next();
  if (done) throw connectionLost();
  const body = JSON.parse(value.data) as { directories?: number } & Partial<ErrorJson>;
  if (value.event === "error") throw errorFromJson(body);
  const end = (): void => {
    signal?.removeEventListener("abort", stop);
    abort.abort();
  };
  return new FileWatch(body.directories ?? 0, all, end, signal);
}
