/** What file calls take and tell. */

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
  /** What a symbolic link says. */
  target?: string;
  /** Of a directory that a recursive list could not look into: `denied`, `too_large`. */
  unread?: string;
}

/** What a directory holds; `includes("name")` asks by name. */
export class Listing extends Array<FileInfo> {
  override includes(wanted: FileInfo | string, from?: number): boolean {
    if (typeof wanted !== "string") return super.includes(wanted, from);
    return this.slice(from).some((entry) => entry.name === wanted);
  }
}

/** An entry as the server says it. */
export interface Entry extends Omit<FileInfo, "modified" | "target"> {
  modified_ms: number;
  target?: string | null;
}

/** Reads an entry. */
export function entry({ name, path, type, size, modified_ms, mode, target, unread }: Entry): FileInfo {
  const more = { ...(target == null ? {} : { target }), ...(unread == null ? {} : { unread }) };
  return { name, path, type, size, modified: modified_ms, mode, ...more };
}

/** How a file is to be written. */
export interface WriteFileOptions {
  /** `content` is text to be written as UTF-8 (unless told), or bytes in base64. */
  encoding?: "utf-8" | "utf8" | "base64";
  /** Permission bits, as `0o755`; a new file has `0o644` unless told, an old one keeps its own. */
  mode?: number;
  /** To the end of what is there; then it is not whole or nothing. */
  append?: boolean;
  /** It is on the disk, file and name, before this resolves. */
  fsync?: boolean;
}

/** Which part of a file, in bytes. */
export interface FileRange {
  /** 0 unless told. */
  start?: number;
  /** As far as the file has them; to its end unless told. */
  length?: number;
}

/** How a file is to be read. */
export interface ReadFileOptions extends FileRange {
  /** `content` is text (unless told; what is no UTF-8 reads U+FFFD), or bytes in base64. */
  encoding?: "utf-8" | "utf8" | "base64";
}

/** What is to be listed. */
export interface ListFilesOptions {
  /** All below it; no link is followed. */
  recursive?: boolean;
  /** Also names that begin with a dot. */
  includeHidden?: boolean;
  /** `*.ts` is for names, `src/**\/*.ts` for paths below the directory. */
  glob?: string;
}

/** What is to be found. */
export interface SearchOptions {
  /** File or directory; `/workspace` unless told. */
  path?: string;
  /** The pattern means itself. */
  literal?: boolean;
  /** Letters match whatever their case. */
  ignoreCase?: boolean;
  /** Also files whose names begin with a dot. */
  includeHidden?: boolean;
  /** Also what `.gitignore` and `.ignore` leave out. */
  ignored?: boolean;
  /** As for lists. */
  glob?: string;
  /** Lines beside each match, 0 to 20. */
  context?: number;
  /** Matching lines, 1 to 10,000; 1,000 unless told. */
  limit?: number;
}

/** A line that matches, or one beside it. */
export interface SearchLine {
  path: string;
  /** From 1 on. */
  line: number;
  /** Without its end; U+FFFD for what is no UTF-8. */
  text: string;
  /** What matched: bytes of the line, from and to. */
  spans: [from: number, to: number][];
  /** It stands beside a match, and is none. */
  context: boolean;
  /** Only its first 2,048 bytes are told. */
  cut: boolean;
}

/** What a search has found. */
export interface SearchResult {
  /** Sorted by path, then by number. */
  lines: SearchLine[];
  /** There is more than that: narrow the search, or raise its limit. */
  more: boolean;
  /** That were searched. */
  files: number;
  /** Of these: what lies behind their first NUL was not looked at. */
  binary: number;
  /** That could not be read, or hold a line above 8 MiB. */
  unread: number;
}
