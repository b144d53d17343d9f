/** Files of a sandbox. Relative paths begin in `/workspace`. */

import type { Isolet } from "./client.js";
import { IsoletError } from "./error.js";

/** One entry of a directory. */
export interface FileInfo {
  name: string;
  path: string;
  type: "file" | "directory" | "symlink" | "other";
  /** In bytes. */
  size: number;
  /** Milliseconds since 1970. */
  modified: number;
  /** Octal, as `0644`. */
  mode: string;
}

/** What a directory holds; `includes("name")` asks by name. */
export class Listing extends Array<FileInfo> {
  override includes(wanted: FileInfo | string, from?: number): boolean {
    if (typeof wanted !== "string") return super.includes(wanted, from);
    return this.slice(from).some((entry) => entry.name === wanted);
  }
}

interface Entry extends Omit<FileInfo, "modified"> {
  modified_ms: number;
}

/** The file calls of one sandbox, or of one of its sessions. */
export class Files {
  protected readonly client: Isolet;
  readonly #at: () => Promise<string>;

  /** @param at gives the path of the calls, once what they work in is there. */
  constructor(client: Isolet, at: () => Promise<string>) {
    this.client = client;
    this.#at = at;
  }

  async #path(path: string): Promise<string> {
    const parts = path.split("/").map(encodeURIComponent);
    return `${await this.#at()}/files/${parts.join("/")}`;
  }

  async #do(op: string, fields: Record<string, unknown>): Promise<Entry & { exists?: boolean }> {
    return this.client.json(`${await this.#at()}/files`, { json: { op, ...fields } });
  }

  /** Writes a whole file: it is there before and after, never half. Parents are made. */
  async writeFile(path: string, content: string | Uint8Array): Promise<{ path: string; size: number }> {
    return this.client.json(await this.#path(path), { method: "PUT", body: content });
  }

  /** Reads a whole file as text. */
  async readFile(path: string): Promise<{ content: string; size: number }> {
    const bytes = new Uint8Array(await (await this.client.send(await this.#path(path))).arrayBuffer());
    return { content: new TextDecoder().decode(bytes), size: bytes.length };
  }

  /** A file's bytes as they come. */
  async readFileStream(path: string): Promise<ReadableStream<Uint8Array>> {
    return (await this.client.send(await this.#path(path))).body!;
  }

  /** Makes a directory with its parents; no error where it is there. */
  async mkdir(path: string): Promise<void> {
    await this.#do("mkdir", { path });
  }

  /** Removes a file, a link, or with `recursive` a directory and all it holds. */
  async deleteFile(path: string, options: { recursive?: boolean } = {}): Promise<void> {
    const query = options.recursive ? "?recursive=1" : "";
    await this.client.send((await this.#path(path)) + query, { method: "DELETE" });
  }

  /** Gives a file another name; what is in the way is replaced. */
  async renameFile(path: string, to: string): Promise<void> {
    await this.#do("move", { path, to });
  }

  /** As {@link Files.renameFile}. */
  async moveFile(path: string, to: string): Promise<void> {
    await this.renameFile(path, to);
  }

  /** What a directory holds. */
  async listFiles(
    path: string,
    options: { recursive?: boolean; includeHidden?: boolean } = {},
  ): Promise<Listing> {
    const query = new URLSearchParams({ path });
    if (options.recursive) query.set("recursive", "1");
    if (options.includeHidden) query.set("hidden", "1");
    let next: string | undefined = `${await this.#at()}/files?${query}`;
    const all = new Listing();
    while (next !== undefined) {
      const response: Response = await this.client.send(next);
      for (const { modified_ms, ...entry } of (await response.json()) as Entry[]) {
        all.push({ ...entry, modified: modified_ms });
      }
      next = /^<([^>]+)>; rel="next"$/.exec(response.headers.get("link") ?? "")?.[1];
    }
    return all;
  }

  /** Whether there is something under a name. */
  async exists(path: string): Promise<{ exists: boolean }> {
    try {
      return { exists: (await this.#do("exists", { path })).exists === true };
    } catch (error) {
      if (error instanceof IsoletError && error.status === 404) return { exists: false };
      throw error;
    }
  }
}
