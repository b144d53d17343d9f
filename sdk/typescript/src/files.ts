/** Files of a sandbox. Relative paths begin in `/workspace`. */

import { IsoletError } from "./error.js";
import {
  type Entry,
  entry,
  type FileInfo,
  type FileRange,
  Listing,
  type ListFilesOptions,
  type ReadFileOptions,
  type SearchLine,
  type SearchOptions,
  type SearchResult,
  type WriteFileOptions,
} from "./file-types.js";
import type { Isolet } from "./client.js";
import { bytes, text } from "./base64.js";
import { type FileWatch, watch, type WatchOptions } from "./watch.js";

/** The file calls of one sandbox, or of one of its sessions. @throws {@link IsoletError} `not_found`,
 *  `denied`, `wrong_kind`, `exists`, `not_empty`, `no_space`. */
export class Files {
  protected readonly client: Isolet;
  readonly #at: () => Promise<string>;

  /** @param at gives the path of the calls, once what they work in is there. */
  constructor(client: Isolet, at: () => Promise<string>) {
    this.client = client;
    this.#at = at;
  }

  async #path(path: string, query: Record<string, string | undefined> = {}): Promise<string> {
    const parts = path.split("/").map(part);
    return `${await this.#at()}/files/${parts.join("/")}${asked(query)}`;
  }

  async #of(path: string, query: Record<string, string | undefined>): Promise<string> {
    return `${await this.#at()}/files${asked({ path, ...query })}`;
  }

  async #do(op: string, fields: Record<string, unknown>): Promise<Entry & { exists?: boolean }> {
    return this.client.json(`${await this.#at()}/files`, { json: { op, ...fields } });
  }

  /** Writes a whole file: it is there before and after, never half. Parents are made. */
  async writeFile(
    path: string,
    content: string | Uint8Array | ReadableStream<Uint8Array>,
    options: WriteFileOptions = {},
  ): Promise<{ path: string; size: number }> {
    const { encoding, mode, append, fsync } = options;
    const body = encoding === "base64" && typeof content === "string" ? bytes(content) : content;
    const query = { mode: mode === undefined ? undefined : octal(mode), append: flag(append), fsync: flag(fsync) };
    return this.client.json(await this.#path(path, query), { method: "PUT", body });
  }

  /** Reads a file, or a part of it; `size` is that of what was read, in bytes. */
  async readFile(path: string, options: ReadFileOptions = {}): Promise<{ content: string; size: number }> {
    const response = await this.#read(path, options);
    const read = new Uint8Array(await response.arrayBuffer());
    const content = options.encoding === "base64" ? text(read) : new TextDecoder().decode(read);
    return { content, size: read.length };
  }

  /** A file's bytes, or a part of them, as they come. */
  async readFileStream(path: string, range: FileRange = {}): Promise<ReadableStream<Uint8Array>> {
    return (await this.#read(path, range)).body!;
  }

  async #read(path: string, { start = 0, length }: FileRange): Promise<Response> {
    const part = start > 0 || length !== undefined;
    if (!Number.isSafeInteger(start) || start < 0 || (length !== undefined && !(length >= 1))) {
      throw new IsoletError(0, "bad_range", "a part begins at 0 or later and has at least one byte");
    }
    const range = `bytes=${start}-${length === undefined ? "" : start + length - 1}`;
    return this.client.send(await this.#path(path), part ? { headers: { range } } : {});
  }

  /** What is under a name; with `follow: false` of a link itself. */
  async stat(path: string, options: { follow?: boolean } = {}): Promise<FileInfo> {
    return entry(await this.#do("stat", { path, follow: options.follow ?? true }));
  }

  /** Makes a directory with its parents; no error where it is there. */
  async mkdir(path: string, _options: { recursive?: boolean } = {}): Promise<void> {
    await this.#do("mkdir", { path });
  }

  /** Removes a file, a link, or with `recursive` a directory and all it holds. */
  async deleteFile(path: string, options: { recursive?: boolean } = {}): Promise<void> {
    const at = await this.#path(path, { recursive: flag(options.recursive) });
    await this.client.send(at, { method: "DELETE" });
  }

  /** Gives a file or directory another name, `to` itself; a file in the way is replaced, or with
   *  `replace: false` refused as `exists`. */
  async renameFile(path: string, to: string, options: { replace?: boolean } = {}): Promise<void> {
    await this.#do("move", { path, to, replace: options.replace ?? true });
  }

  /** As {@link Files.renameFile}. */
  async moveFile(path: string, to: string, options: { replace?: boolean } = {}): Promise<void> {
    await this.renameFile(path, to, options);
  }

  /** Copies a file, or a directory with all it holds, under the name `to` itself. */
  async copyFile(path: string, to: string, options: { replace?: boolean } = {}): Promise<FileInfo> {
    return entry(await this.#do("copy", { path, to, replace: options.replace ?? true }));
  }

  /** Sets permission bits, as `0o755`. */
  async chmod(path: string, mode: number): Promise<FileInfo> {
    return entry(await this.#do("chmod", { path, mode: octal(mode) }));
  }

  /** What a directory holds, sorted. */
  async listFiles(path: string, options: ListFilesOptions = {}): Promise<Listing> {
    const { recursive, includeHidden, glob } = options;
    const first = await this.#of(path, { recursive: flag(recursive), hidden: flag(includeHidden), glob });
    const all = new Listing();
    for await (const one of this.client.pages<Entry>(first)) all.push(entry(one));
    return all;
  }

  /** Lines that match a regular expression (of Rust's `regex` crate, within one line, at most 4,096 bytes)
   *  in a file, or in all files below a directory. */
  async search(pattern: string, options: SearchOptions = {}): Promise<SearchResult> {
    const { path = "/workspace", literal, ignoreCase, includeHidden, ignored, glob, context, limit } = options;
    const query = {
      search: pattern,
      literal: flag(literal),
      ignore_case: flag(ignoreCase),
      hidden: flag(includeHidden),
      ignored: flag(ignored),
      glob,
      context: context?.toString(),
      limit: limit?.toString(),
    };
    const found = await this.client.json<SearchResult>(await this.#of(path, query));
    const line = (one: Partial<SearchLine>): SearchLine => ({
      path: one.path!,
      line: one.line!,
      text: one.text!,
      spans: one.spans ?? [],
      context: one.context ?? false,
      cut: one.cut ?? false,
    });
    return { ...found, lines: found.lines.map(line) };
  }

  /** What happens in a directory, from the moment on at which this resolves: nothing is missed. The sandbox
   *  stays awake until it is closed. */
  async watch(path = "/workspace", options: WatchOptions = {}): Promise<FileWatch> {
    const at = await this.#of(path, { watch: "1", recursive: flag(options.recursive) });
    return watch(this.client, at, options.signal);
  }

  /** A directory (`/workspace` unless told) as a tar archive, with modes, times and links; with `compress`
   *  by zstd. */
  async readArchive(path = "/workspace", options: { compress?: boolean } = {}): Promise<ReadableStream<Uint8Array>> {
    const at = await this.#of(path, { tar: options.compress ? "zstd" : "1" });
    return (await this.client.send(at)).body!;
  }

  /** Unpacks a tar archive, plain or compressed by zstd, into a directory (`/workspace` unless told), which
   *  is made. What is there under the same names is replaced; what came before a fault stays. */
  async writeArchive(archive: Uint8Array | ReadableStream<Uint8Array>, path = "/workspace"): Promise<void> {
    await this.client.send(await this.#path(path, { untar: "1" }), { method: "PUT", body: archive });
  }

  /** Whether there is something under a name. A link counts when it leads somewhere. */
  async exists(path: string): Promise<{ exists: boolean }> {
    try {
      return { exists: (await this.#do("exists", { path })).exists === true };
    } catch (error) {
      if (error instanceof IsoletError && error.status === 404) return { exists: false };
      throw error;
    }
  }
}

/** A part of a path: `.` and `..` too are names of the sandbox's own. */
function part(name: string): string {
  return name === "." || name === ".." ? name.replaceAll(".", "%2E") : encodeURIComponent(name);
}

function asked(query: Record<string, string | undefined>): string {
  const told = Object.entries(query).filter((one): one is [string, string] => one[1] !== undefined);
  return told.length > 0 ? `?${new URLSearchParams(told)}` : "";
}

function flag(told: boolean | undefined): string | undefined {
  return told ? "1" : undefined;
}

function octal(mode: number): string {
  return mode.toString(8).padStart(4, "0");
}
