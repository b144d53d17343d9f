/** Uploads into sandboxes, with progress. */

import { signal } from "@preact/signals";
import { describeError } from "../../lib/api";
import { notifyFailure } from "../../lib/notice";
import { below, upload } from "./disk";

/** An upload. */
export interface UploadEntry {
  number: number;
  sandbox: string;
  path: string;
  size: number;
  sent: number;
  state: "waits" | "runs" | "done" | "failed";
  why: string;
  abort: () => void;
}

/** Number of concurrent uploads. */
const AT_ONCE = 3;
const SHOWN_MS = 2500;

/** Uploads on display. */
export const uploads = signal<readonly UploadEntry[]>([]);

let count = 0;
const waiting: (() => Promise<void>)[] = [];
let running = 0;

function set(number: number, change: Partial<UploadEntry>): void {
  uploads.value = uploads.value.map((one) => (one.number === number ? { ...one, ...change } : one));
}

/** Remove an upload from the list. */
export function forget(number: number): void {
  uploads.value = uploads.value.filter((one) => one.number !== number);
}

function next(): void {
  while (running < AT_ONCE) {
    const run = waiting.shift();
    if (!run) return;
    running++;
    void run().finally(() => {
      running--;
      next();
    });
  }
}

/**
 * Upload files into a directory.
 *
 * @param each called after each completed upload.
 */
export function send(sandbox: string, into: string, files: { name: string; blob: Blob }[], each: () => void): void {
  for (const { name, blob } of files) {
    const number = ++count;
    const path = below(into, name);
    const one: UploadEntry = { number, sandbox, path, size: blob.size, sent: 0, state: "waits", why: "", abort: () => forget(number) };
    uploads.value = [...uploads.value, one];
    waiting.push(async () => {
      if (!uploads.value.some((one) => one.number === number)) return;
      const { done, abort } = upload(sandbox, path, blob, (sent) => set(number, { sent }));
      set(number, { state: "runs", abort });
      try {
        await done;
        set(number, { state: "done", sent: blob.size });
        setTimeout(() => forget(number), SHOWN_MS);
        each();
      } catch (error) {
        set(number, { state: "failed", why: describeError(error).message });
        notifyFailure(error, `Could not upload ${name}`);
      }
    });
  }
  next();
}

/** Files of a drop, including the content of directories. */
export async function droppedFiles(transfer: DataTransfer): Promise<{ name: string; blob: Blob }[]> {
  // Read all items before the first await: the browser clears the list afterwards.
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter((one) => one !== null && one !== undefined);
  if (entries.length === 0) return [...transfer.files].map((blob) => ({ name: blob.name, blob }));
  const all: { name: string; blob: Blob }[] = [];
  for (const entry of entries) await walk(entry, all);
  return all;
}

/** Limit on the number of files in one drop. */
const DROPPED_MAX = 2000;

async function walk(entry: FileSystemEntry, all: { name: string; blob: Blob }[]): Promise<void> {
  if (all.length >= DROPPED_MAX) return;
  if (entry.isFile) {
    const blob = await new Promise<File>((resolve, reject) => (entry as FileSystemFileEntry).file(resolve, reject));
    all.push({ name: entry.fullPath.replace(/^\//, ""), blob });
  } else if (entry.isDirectory) {
    const reader = (entry as FileSystemDirectoryEntry).createReader();
    for (;;) {
      const some = await new Promise<FileSystemEntry[]>((resolve, reject) => reader.readEntries(resolve, reject));
      if (some.length === 0) return;
      for (const one of some) await walk(one, all);
    }
  }
}
