/** File requests of the console. */

import { IsoletError } from "@isolet/sdk";
import { api, at } from "../../lib/api";
import { key } from "../../lib/key";

/** An entry of a directory. */
export interface Entry {
  name: string;
  path: string;
  type: "file" | "directory" | "symlink" | "other";
  size: number;
  modified_ms: number;
  mode: string;
  target?: string;
  /** Exact bytes of a path that is not UTF-8. */
  path_b64?: string;
}

/** Entries per page. */
export const PAGE = 500;

/** Initial directory. */
export const ROOT = "/workspace";

/**
 * Read a page of a directory.
 *
 * @returns the entries, and the URL path of the next page.
 */
export async function list(from: string, signal: AbortSignal): Promise<{ entries: Entry[]; next: string | undefined }> {
  const response = await api().send(from, { signal });
  const next = /^<([^>]+)>; rel="next"$/.exec(response.headers.get("link") ?? "")?.[1];
  return { entries: (await response.json()) as Entry[], next };
}

/** URL path of the first page of a directory. */
export function directory(sandbox: string, path: string, hidden: boolean): string {
  const query = new URLSearchParams({ path, limit: String(PAGE) });
  if (hidden) query.set("hidden", "1");
  return `${at(sandbox, "files")}?${query}`;
}

/** URL path of a file. Encodes the exact bytes of its name. */
export function address(sandbox: string, { path, path_b64 }: Pick<Entry, "path" | "path_b64">): string {
  const bytes = path_b64 === undefined ? new TextEncoder().encode(path) : decodeBase64(path_b64);
  let coded = "";
  for (const byte of bytes) {
    const char = String.fromCharCode(byte);
    coded += /[A-Za-z0-9._~/-]/.test(char) ? char : `%${byte.toString(16).toUpperCase().padStart(2, "0")}`;
  }
  // An encoded leading slash marks an absolute path.
  return `${at(sandbox, "files")}/${coded.replace(/^\//, "%2F")}`;
}

function decodeBase64(text: string): Uint8Array {
  return Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
}

/** Path of a name in a directory. */
export const below = (path: string, name: string): string => `${path.replace(/\/+$/, "")}/${name}`;

/** Parent directory of a path. */
export const above = (path: string): string => path.replace(/\/+[^/]*\/*$/, "") || "/";

/** Parts of a path. */
export const split = (path: string): string[] => path.split("/").filter((part) => part !== "");

/** Route of a path in the console. The root directory is `.`, since an empty route means the workspace. */
export const place = (path: string): string[] => (path === "/" ? ["."] : split(path));

/** Metadata of a link's target. */
export async function stat(sandbox: string, { path, path_b64 }: Entry): Promise<Entry> {
  const named = path_b64 === undefined ? { path } : { path_b64 };
  return api().json<Entry>(at(sandbox, "files"), { json: { op: "stat", ...named, follow: true } });
}

/** The entry of a path; `undefined` if there is none. */
export async function existing(sandbox: string, path: string): Promise<Entry | undefined> {
  try {
    return await api().json<Entry>(at(sandbox, "files"), { json: { op: "stat", path } });
  } catch (error) {
    if (error instanceof IsoletError && error.status === 404) return undefined;
    throw error;
  }
}

/** Run a file operation. */
export async function change(sandbox: string, json: Record<string, unknown>): Promise<void> {
  await api().send(at(sandbox, "files"), { json });
}

/** Read at most the first `bytes` bytes. */
export async function head(sandbox: string, entry: Entry, bytes: number, signal: AbortSignal): Promise<Uint8Array> {
  if (entry.size === 0 && entry.type === "file") {
    // Some files, such as those in /proc, report size 0 but have content.
    const all = await api().send(address(sandbox, entry), { signal });
    return new Uint8Array(await all.arrayBuffer()).slice(0, bytes);
  }
  const headers = { range: `bytes=0-${bytes - 1}` };
  const part = await api().send(address(sandbox, entry), { headers, signal });
  return new Uint8Array(await part.arrayBuffer());
}

/** An upload. */
export interface Upload {
  done: Promise<void>;
  abort: () => void;
}

/** Upload a file. Uses XMLHttpRequest, since `fetch` does not report progress. */
export function upload(sandbox: string, path: string, file: Blob, progress: (sent: number) => void): Upload {
  const request = new XMLHttpRequest();
  const done = new Promise<void>((resolve, reject) => {
    request.open("PUT", address(sandbox, { path }));
    request.setRequestHeader("authorization", `Bearer ${key.peek() ?? ""}`);
    request.upload.onprogress = ({ loaded }) => progress(loaded);
    request.onload = () => {
      if (request.status >= 200 && request.status < 300) return resolve();
      reject(errorFromResponse(request.status, request.responseText));
    };
    request.onerror = () => reject(new IsoletError(0, "unreachable", "the server did not answer", "nothing was written"));
    request.onabort = () => reject(new IsoletError(0, "aborted", "the upload was cancelled", "nothing was written"));
    request.send(file);
  });
  return { done, abort: () => request.abort() };
}

function errorFromResponse(status: number, text: string): IsoletError {
  try {
    const body = JSON.parse(text) as { error: string; message: string; hint: string };
    return new IsoletError(status, body.error, body.message, body.hint);
  } catch {
    return new IsoletError(status, "unknown", text || `the server answered ${status}`);
  }
}
