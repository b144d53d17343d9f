/** Options and results of file methods. */

/** A file, directory or symbolic link. */
export interface FileInfo {
  name: string;
  path: string;
  type: "file" | "directory" | "symlink" | "other";
  /** In bytes. */
  size: number;
  /** Milliseconds since 1970. */
  modified: number;
  /** Permission bits in octal, e.g. `0644`. */
  mode: string;
  /** Target of a symbolic link. */
  target?: string;
  /** Why a recursive list skipped this directory: `denied` or `too_large`. */
  unread?: string;
  /** Version of a file, for `ifMatch` of a write. Lists leave it out. */
  etag?: string;
}

/** Entries of a directory. */
export class Listing extends Array<FileInfo> {
  /** Check whether an entry, or an entry with a given name, exists. */
  override includes(wanted: FileInfo | string, from?: number): boolean {
    if (typeof wanted !== "string") return super.includes(wanted, from);
    return this.slice(from).some((fileInfo) => fileInfo.name === wanted);
  }
}

/** The server's JSON of an entry. */
export interface FileJson extends Omit<FileInfo, "modified" | "target"> {
  modified_ms: number;
  target?: string | null;
}

/** Convert the server's JSON. */
export function fileInfo({ name, path, type, size, modified_ms, mode, target, unread, etag }: FileJson): FileInfo {
  const optional = {
    ...(target == null ? {} : { target }),
    ...(unread == null ? {} : { unread }),
    ...(etag == null ? {} : { etag }),
  };
  return { name, path, type, size, modified: modified_ms, mode, ...optional };
}

/** Options for writing a file. */
export interface WriteFileOptions {
  /** `content` is text to be encoded as UTF-8 (default), or bytes in base64. */
  encoding?: "utf-8" | "utf8" | "base64";
  /** Permission bits, e.g. `0o755`. By default, new files get `0o644` and existing files keep theirs. */
  mode?: number;
  /** Append to an existing file. Such a write is not atomic. */
  append?: boolean;
  /** Resolve only after file and directory entry are on disk. */
  fsync?: boolean;
  /**
   * Replace the file only if its `etag`, from `stat` or an earlier write, is still this one; with `"*"`, only if
   * it exists. Otherwise the write fails with `file_changed` (412).
   */
  ifMatch?: string;
}

/** A range of bytes. */
export interface FileRange {
  /** Offset of the first byte; 0 by default. */
  start?: number;
  /** Number of bytes; up to the end of the file by default. */
  length?: number;
}

/** Options for reading a file. */
export interface ReadFileOptions extends FileRange {
  /** Return text (default; invalid UTF-8 becomes U+FFFD), or bytes in base64. */
  encoding?: "utf-8" | "utf8" | "base64";
}

/** Options for listing a directory. */
export interface ListFilesOptions {
  /** Include subdirectories; symbolic links are not followed. */
  recursive?: boolean;
  /** Include names that start with a dot. */
  includeHidden?: boolean;
  /** Filter: `*.ts` matches names, `src/**\/*.ts` matches paths relative to the directory. */
  glob?: string;
}

/** Options of a search. */
export interface SearchOptions {
  /** File or directory to search; `/workspace` by default. */
  path?: string;
  /** Treat the pattern as plain text. */
  literal?: boolean;
  /** Ignore upper and lower case. */
  ignoreCase?: boolean;
  /** Include files whose names start with a dot. */
  includeHidden?: boolean;
  /** Include files that `.gitignore` or `.ignore` exclude. */
  ignored?: boolean;
  /** Filter, as in {@link ListFilesOptions}. */
  glob?: string;
  /** Number of context lines around each match, 0 to 20. */
  context?: number;
  /** Maximum number of matching lines, 1 to 10,000; 1,000 by default. */
  limit?: number;
}

/** A line found by a search, or a context line next to it. */
export interface SearchLine {
  path: string;
  /** Line number, from 1. */
  line: number;
  /** Without line ending; invalid UTF-8 becomes U+FFFD. */
  text: string;
  /** Matches: start and end offset in bytes. */
  spans: [from: number, to: number][];
  /** A context line, not a match. */
  context: boolean;
  /** Longer than 2,048 bytes; only those are included. */
  cut: boolean;
}

/** Options of {@link Files.changes}. */
export interface ChangesOptions {
  /** Directory to compare. Defaults to `/workspace`. */
  path?: string;
  /** Include subdirectories, at most 100,000 files. Defaults to `true`. */
  recursive?: boolean;
  /** Report only changes that match one of these patterns, as in a watch. */
  include?: string[];
  /** Do not report changes that match one of these patterns, or that are below a directory that does. */
  exclude?: string[];
  /** Maximum number of changes, 1 to 10,000. Defaults to 10,000. */
  limit?: number;
}

/** A path that changed since a version. */
export interface ChangedFile {
  /** Absolute path in the sandbox. */
  path: string;
  /** `modified`: content, attributes, or another file of the same name. */
  change: "created" | "modified" | "deleted";
  /** Type of the file; of a deleted path, what it was. */
  type: "file" | "directory" | "symlink" | "other";
}

/** Changes in a directory since a version. */
export interface FileChanges {
  /** Version to continue from. */
  version: string;
  /** At most one for each path, sorted by path. */
  changes: ChangedFile[];
  /** There are more changes: continue from `version` at once. */
  more: boolean;
}

/** Result of a search. */
export interface SearchResult {
  /** Sorted by path, then by line number. */
  lines: SearchLine[];
  /** There is more than that: narrow the search, or raise its limit. */
  more: boolean;
  /** Number of files searched. */
  files: number;
  /** Binary files among them: searched only up to their first NUL byte. */
  binary: number;
  /** Files that could not be read or have a line above 8 MiB. */
  unread: number;
}
