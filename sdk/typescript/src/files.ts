/** Files of a sandbox or session. Relative paths start in `/workspace`. */

import { IsoletError } from "./error.js";
import {
  type ChangesOptions,
  type FileChanges,
  type FileJson,
  fileInfo,
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

/**
 * File methods of a sandbox or session.
 *
 * @throws {@link IsoletError} `not_found`, `denied`, `wrong_kind`, `exists`, `not_empty` or `no_space`.
 */
export class Files {
  protected readonly client: Isolet;
  readonly #basePath: () => Promise<string>;

  /**
   * @param client the client.
   * @param at returns the base URL path, after creating the sandbox if needed.
   */
  constructor(client: Isolet, at: () => Promise<string>) {
    this.client = client;
    this.#basePath = at;
  }

  async #path(path: string, query: Record<string, string | undefined> = {}): Promise<string> {
    const parts = path.split("/").map(encodeSegment);
    return `${await this.#basePath()}/files/${parts.join("/")}${queryString(query)}`;
  }

  async #queryPath(path: string, query: Record<string, string | undefined>): Promise<string> {
    return `${await this.#basePath()}/files${queryString({ path, ...query })}`;
  }

  async #operation(op: string, fields: Record<string, unknown>): Promise<FileJson & { exists?: boolean }> {
    return this.client.json(`${await this.#basePath()}/files`, { json: { op, ...fields } });
  }

  /**
   * Write a file atomically: readers see either the old or the new content. Parent directories are created.
   *
   * @param path file to write.
   * @param content text, bytes or a stream.
   * @param options encoding, permission bits, append, fsync and `ifMatch`.
   * @returns absolute path, size in bytes, and version of the file.
   * @throws {@link IsoletError} `file_changed`: the file is not the one of `ifMatch`.
   */
  async writeFile(
    path: string,
    content: string | Uint8Array | ReadableStream<Uint8Array>,
    options: WriteFileOptions = {},
  ): Promise<{ path: string; size: number; etag?: string }> {
    const { encoding, mode, append, fsync, ifMatch } = options;
    const body = encoding === "base64" && typeof content === "string" ? bytes(content) : content;
    const query = { mode: mode === undefined ? undefined : octalMode(mode), append: flag(append), fsync: flag(fsync) };
    const headers: Record<string, string> = ifMatch === undefined ? {} : { "if-match": ifMatch };
    return this.client.json(await this.#path(path, query), { method: "PUT", body, headers });
  }

  /**
   * Read a file, or a range of it.
   *
   * @param path file to read.
   * @param options range and encoding.
   * @returns content, and its size in bytes.
   */
  async readFile(path: string, options: ReadFileOptions = {}): Promise<{ content: string; size: number }> {
    const response = await this.#read(path, options);
    const read = new Uint8Array(await response.arrayBuffer());
    const content = options.encoding === "base64" ? text(read) : new TextDecoder().decode(read);
    return { content, size: read.length };
  }

  /** Stream a file, or a range of it. */
  async readFileStream(path: string, range: FileRange = {}): Promise<ReadableStream<Uint8Array>> {
    return (await this.#read(path, range)).body!;
  }

  async #read(path: string, { start = 0, length }: FileRange): Promise<Response> {
    const encodeSegment = start > 0 || length !== undefined;
    if (!Number.isSafeInteger(start) || start < 0 || (length !== undefined && !(length >= 1))) {
      throw new IsoletError(0, "bad_range", "start must be 0 or more, and length at least 1");
    }
    const range = `bytes=${start}-${length === undefined ? "" : start + length - 1}`;
    return this.client.send(await this.#path(path, { type: "file" }), encodeSegment ? { headers: { range } } : {});
  }

  /**
   * Read metadata of a file or directory.
   *
   * @param path file or directory.
   * @param options `follow: false` describes a symbolic link itself.
   */
  async stat(path: string, options: { follow?: boolean } = {}): Promise<FileInfo> {
    return fileInfo(await this.#operation("stat", { path, follow: options.follow ?? true }));
  }

  /** Create a directory and its parents. No error if it exists. */
  async mkdir(path: string, _options: { recursive?: boolean } = {}): Promise<void> {
    await this.#operation("mkdir", { path });
  }

  /**
   * Delete a file, a symbolic link or an empty directory.
   *
   * @param path what to delete.
   * @param options `recursive`: delete a directory with its content.
   */
  async deleteFile(path: string, options: { recursive?: boolean } = {}): Promise<void> {
    const at = await this.#path(path, { recursive: flag(options.recursive) });
    await this.client.send(at, { method: "DELETE" });
  }

  /**
   * Rename a file or directory to exactly `to`.
   *
   * @param path file or directory to rename.
   * @param to new path.
   * @param options `replace: false` fails with `exists` instead of replacing a file.
   */
  async renameFile(path: string, to: string, options: { replace?: boolean } = {}): Promise<void> {
    await this.#operation("move", { path, to, replace: options.replace ?? true });
  }

  /** Same as {@link Files.renameFile}. */
  async moveFile(path: string, to: string, options: { replace?: boolean } = {}): Promise<void> {
    await this.renameFile(path, to, options);
  }

  /**
   * Copy a file, or a directory with its content, to exactly `to`.
   *
   * @param path file or directory to copy.
   * @param to path of the copy.
   * @param options `replace: false` fails with `exists` instead of replacing a file.
   */
  async copyFile(path: string, to: string, options: { replace?: boolean } = {}): Promise<FileInfo> {
    return fileInfo(await this.#operation("copy", { path, to, replace: options.replace ?? true }));
  }

  /**
   * Set permission bits.
   *
   * @param path file or directory.
   * @param mode for example `0o755`.
   */
  async chmod(path: string, mode: number): Promise<FileInfo> {
    return fileInfo(await this.#operation("chmod", { path, mode: octalMode(mode) }));
  }

  /**
   * List a directory, sorted.
   *
   * @param path directory to list.
   * @param options subdirectories, hidden files and filter.
   */
  async listFiles(path: string, options: ListFilesOptions = {}): Promise<Listing> {
    const { recursive, includeHidden, glob } = options;
    const first = await this.#queryPath(path, { recursive: flag(recursive), hidden: flag(includeHidden), glob });
    const all = new Listing();
    for await (const json of this.client.pages<FileJson>(first)) all.push(fileInfo(json));
    return all;
  }

  /**
   * Search a file, or all files in a directory, for lines that match a regular expression.
   *
   * @param pattern expression in the syntax of Rust's `regex` crate, matched within lines; at most 4,096
   *   bytes.
   * @param options where and how to search.
   */
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
    const found = await this.client.json<SearchResult>(await this.#queryPath(path, query));
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

  /**
   * Watch a directory for changes. Resolves when the watch is active; all later changes are included. The
   * sandbox does not sleep until the watch is closed.
   *
   * @param path directory to watch.
   * @param options `recursive`: include subdirectories. `include`, `exclude`: patterns. `signal`: aborts the
   *   watch.
   * @example
   * ```ts
   * for await (const change of await sandbox.watch("src")) console.log(change.type, change.path);
   * ```
   */
  async watch(path = "/workspace", options: WatchOptions = {}): Promise<FileWatch> {
    const at = await this.#queryPath(path, { watch: "1", recursive: flag(options.recursive) });
    return watch(this.client, at + patternQuery(options), options.signal);
  }

  /**
   * Find out what changed in a directory since a version.
   *
   * @param since `version` of an earlier answer for the same directory and `recursive`. By default, the answer is
   *   the current version and no changes.
   * @param options directory, subdirectories, patterns and limit.
   * @throws {@link IsoletError} `version_expired`: take a new version, then list the directory.
   * @example
   * ```ts
   * const { version } = await sandbox.changes();
   * await sandbox.exec("make");
   * for (const one of (await sandbox.changes(version)).changes) console.log(one.change, one.path);
   * ```
   */
  async changes(since = "now", options: ChangesOptions = {}): Promise<FileChanges> {
    const { path = "/workspace", recursive = true, limit = 10_000 } = options;
    const query = { changes_since: since, recursive: flag(recursive), limit: limit.toString() };
    const at = await this.#queryPath(path, query);
    return this.client.json<FileChanges>(at + patternQuery(options));
  }

  /**
   * Download a directory as a tar archive with modes, times and links.
   *
   * @param path directory to read.
   * @param options `compress`: compress with zstd.
   */
  async readArchive(path = "/workspace", options: { compress?: boolean } = {}): Promise<ReadableStream<Uint8Array>> {
    const at = await this.#queryPath(path, { tar: options.compress ? "zstd" : "1" });
    return (await this.client.send(at)).body!;
  }

  /**
   * Unpack a tar archive, plain or compressed with zstd, into a directory, which is created. Existing files
   * of the same names are replaced. After an error, the entries before it stay.
   *
   * @param archive bytes or a stream.
   * @param path directory to unpack into.
   */
  async writeArchive(archive: Uint8Array | ReadableStream<Uint8Array>, path = "/workspace"): Promise<void> {
    await this.client.send(await this.#path(path, { untar: "1" }), { method: "PUT", body: archive });
  }

  /** Check whether a path exists. Dangling symbolic links do not. */
  async exists(path: string): Promise<{ exists: boolean }> {
    try {
      return { exists: (await this.#operation("exists", { path })).exists === true };
    } catch (error) {
      if (error instanceof IsoletError && error.status === 404) return { exists: false };
      throw error;
    }
  }
}

/** Percent-encode a path segment. `.` and `..` are encoded too, so that `fetch` does not resolve them. */
function encodeSegment(name: string): string {
  return name === "." || name === ".." ? name.replaceAll(".", "%2E") : encodeURIComponent(name);
}

function queryString(query: Record<string, string | undefined>): string {
  const value = Object.entries(query).filter((one): one is [string, string] => one[1] !== undefined);
  return value.length > 0 ? `?${new URLSearchParams(value)}` : "";
}

/** The rest of a query that selects changes. */
function patternQuery({ include = [], exclude = [] }: { include?: string[]; exclude?: string[] }): string {
  const patterns = new URLSearchParams();
  include.forEach((pattern) => patterns.append("include", pattern));
  exclude.forEach((pattern) => patterns.append("exclude", pattern));
  return patterns.size > 0 ? `&${patterns}` : "";
}

function flag(value: boolean | undefined): string | undefined {
  return value ? "1" : undefined;
}

function octalMode(mode: number): string {
  return mode.toString(8).padStart(4, "0");
}
