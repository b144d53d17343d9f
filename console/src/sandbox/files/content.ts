/** Reading and saving the whole content of a text file, without overwriting what others have written. */

import { IsoletError } from "@isolet/sdk";
import { api } from "../../lib/api";
import { address, type Entry } from "./disk";

/** Limit on the size of files that can be edited. */
export const EDIT_BYTES_MAX = 2 * 1024 * 1024;

/** A version of a file. */
export interface Version {
  text: string;
  /** Identifies the version; empty if the file does not exist. */
  etag: string;
}

/**
 * Read a file.
 *
 * @throws {@link IsoletError} if it is too large, or no text in UTF-8.
 */
export async function read(sandbox: string, entry: Entry, signal?: AbortSignal): Promise<Version> {
  const response = await api().send(address(sandbox, entry), { signal });
  const bytes = new Uint8Array(await response.arrayBuffer());
  if (bytes.length > EDIT_BYTES_MAX) throw new IsoletError(0, "too_large", "the file is too large to edit here", "edit it in a terminal");
  try {
    // The byte order mark stays, so that the file is saved as it was.
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
    return { text, etag: response.headers.get("etag") ?? "" };
  } catch {
    throw new IsoletError(0, "not_text", "the file is not text in UTF-8", "download it, or edit it in a terminal");
  }
}

/**
 * Save a file. The server compares the version, so that a change of another client is never lost.
 *
 * @param before tag of the version that the text was made from; `undefined` overwrites any version.
 * @returns the tag of the new version; `undefined` if another version is there, and nothing was saved.
 */
export async function save(sandbox: string, entry: Entry, text: string, before: string | undefined): Promise<string | undefined> {
  if (!before) return put(sandbox, entry, text, {});
  try {
    return await put(sandbox, entry, text, { "if-match": before });
  } catch (error) {
    if (error instanceof IsoletError && error.code === "file_changed") return undefined;
    throw error;
  }
}

async function put(sandbox: string, entry: Entry, text: string, condition: Record<string, string>): Promise<string> {
  const headers = { "content-type": "application/octet-stream", ...condition };
  const response = await api().send(address(sandbox, entry), { method: "PUT", body: text, headers });
  return response.headers.get("etag") ?? "";
}
