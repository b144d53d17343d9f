/** A sandbox's files: listed, read, written, changed. */

import { IsoletError } from "@isolet/sdk";
import { api, at } from "../lib/api";
import { key } from "../lib/key";

/** One entry of a directory. */
export interface Entry {
  name: string;
  path: string;
  type: "file" | "directory" | "symlink" | "other";
  size: number;
  modified_ms: number;
  mode: string;
  target?: string;
  /** The exact bytes, where they are not UTF-8. */
  path_b64?: string;
}

/** Entries of one page. */
export const PAGE = 500;

/** Where everything begins. */
export const ROOT = "/workspace";

/** A page of a directory, and where the next one is. */
export async function list(from: string, signal: AbortSignal): Promise<{ entries: Entry[]; next: string | undefined }> {
  const response = await api().send(from, { signal });
  const next = /^<([^>]+)>; rel="next"$/.exec(response.headers.get("link") ?? "")?.[1];
  return { entries: (await response.json()) as Entry[], next };
}

/** Where the first page of a directory is. */
export function directory(sandbox: string, path: string, hidden: boolean): string {
  const query = new URLSearchParams({ path, limit: String(PAGE) });
  if (hidden) query.set("hidden", "1");
  return `${at(sandbox, "files")}?${query}`;
}

/** The address of what stands under a path; its bytes exactly. */
export function address(sandbox: string, { path, path_b64 }: Pick<Entry, "path" | "path_b64">): string {
  const bytes = path_b64 === undefined ? new TextEncoder().encode(path) : unpack(path_b64);
  let coded = "";
  for (const byte of bytes) {
    const char = String.fromCharCode(byte);
    coded += /[A-Za-z0-9._~/-]/.test(char) ? char : `%${byte.toString(16).toUpperCase().padStart(2, "0")}`;
  }
  // One that begins with a slash is of the whole sandbox.
  return `${at(sandbox, "files")}/${coded.replace(/^\//, "%2F")}`;
}

function unpack(text: string): Uint8Array {
  return Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
}

/** A name below a directory. */
export const below = (path: string, name: string): string => `${path.replace(/\/+$/, "")}/${name}`;

/** The directory that holds a path. */
export const above = (path: string): string => path.replace(/\/+[^/]*\/*$/, "") || "/";

/** The parts of a path. */
export const split = (path: string): string[] => path.split("/").filter((part) => part !== "");

/** Where a path is in the console. The root has a name of its own there: no name is the workspace. */
export const place = (path: string): string[] => (path === "/" ? ["."] : split(path));

/** What a link leads to. */
export async function stat(sandbox: string, { path, path_b64 }: Entry): Promise<Entry> {
  const named = path_b64 === undefined ? { path } : { path_b64 };
  return api().json<Entry>(at(sandbox, "files"), { json: { op: "stat", ...named, follow: true } });
}

/** Does something to a path. */
export async function change(sandbox: string, json: Record<string, unknown>): Promise<void> {
  await api().send(at(sandbox, "files"), { json });
}

/** Reads at most so many bytes from the beginning. */
export async function head(sandbox: string, entry: Entry, bytes: number, signal: AbortSignal): Promise<Uint8Array> {
  if (entry.size === 0 && entry.type === "file") {
    // Some files say that they are empty and are not.
    const all = await api().send(address(sandbox, entry), { signal });
    return new Uint8Array(await all.arrayBuffer()).slice(0, bytes);
  }
  const headers = { range: `bytes=0-${bytes - 1}` };
  const part = await api().send(address(sandbox, entry), { headers, signal });
  return new Uint8Array(await part.arrayBuffer());
}

/** One upload. */
export interface Upload {
  done: Promise<void>;
  abort: () => void;
}

/** Writes a file; `fetch` cannot tell how far it is. */
export function upload(sandbox: string, path: string, file: Blob, progress: (sent: number) => void): Upload {
  const request = new XMLHttpRequest();
  const done = new Promise<void>((resolve, reject) => {
    request.open("PUT", address(sandbox, { path }));
    request.setRequestHeader("authorization", `Bearer ${key.peek() ?? ""}`);
    request.upload.onprogress = ({ loaded }) => progress(loaded);
    request.onload = () => {
      if (request.status >= 200 && request.status < 300) return resolve();
      reject(refusal(request.status, request.responseText));
    };
    request.onerror = () => reject(new IsoletError(0, "unreachable", "the server does not answer", "nothing was written"));
    request.onabort = () => reject(new IsoletError(0, "aborted", "stopped", "nothing was written"));
    request.send(file);
  });
  return { done, abort: () => request.abort() };
}

function refusal(status: number, text: string): IsoletError {
  try {
    const said = JSON.parse(text) as { error: string; message: string; hint: string };
    return new IsoletError(status, said.error, said.message, said.hint);
  } catch {
    return new IsoletError(status, "unknown", text || `the server answered ${status}`);
  }
}
