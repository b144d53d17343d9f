/** Files on their way into sandboxes, with how far they are. */

import { signal } from "@preact/signals";
import { told } from "../lib/api";
import { failed } from "../lib/notice";
import { below, upload } from "./disk";

/** One of them. */
export interface Sending {
  number: number;
  sandbox: string;
  path: string;
  size: number;
  sent: number;
  state: "waits" | "runs" | "done" | "failed";
  why: string;
  abort: () => void;
}

/** At once. */
const AT_ONCE = 3;
const SHOWN_MS = 2500;

/** All that are shown. */
export const sending = signal<readonly Sending[]>([]);

let count = 0;
const waiting: (() => Promise<void>)[] = [];
let running = 0;

function set(number: number, change: Partial<Sending>): void {
  sending.value = sending.value.map((one) => (one.number === number ? { ...one, ...change } : one));
}

/** Takes one from the list. */
export function forget(number: number): void {
  sending.value = sending.value.filter((one) => one.number !== number);
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

/** Sends files into a directory; calls `each` after each one that is there. */
export function send(sandbox: string, into: string, files: { name: string; blob: Blob }[], each: () => void): void {
  for (const { name, blob } of files) {
    const number = ++count;
    const path = below(into, name);
    const one: Sending = { number, sandbox, path, size: blob.size, sent: 0, state: "waits", why: "", abort: () => forget(number) };
    sending.value = [...sending.value, one];
    waiting.push(async () => {
      if (!sending.value.some((one) => one.number === number)) return;
      const { done, abort } = upload(sandbox, path, blob, (sent) => set(number, { sent }));
      set(number, { state: "runs", abort });
      try {
        await done;
        set(number, { state: "done", sent: blob.size });
        setTimeout(() => forget(number), SHOWN_MS);
        each();
      } catch (error) {
        set(number, { state: "failed", why: told(error).message });
        failed(error, `Cannot upload ${name}`);
      }
    });
  }
  next();
}

/** What was dropped: files, and what directories hold. */
export async function dropped(transfer: DataTransfer): Promise<{ name: string; blob: Blob }[]> {
  // All of them at once: the list is empty after the first wait.
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter((one) => one !== null && one !== undefined);
  if (entries.length === 0) return [...transfer.files].map((blob) => ({ name: blob.name, blob }));
  const all: { name: string; blob: Blob }[] = [];
  for (const entry of entries) await walk(entry, all);
  return all;
}

/** Files of one drop, at most. */
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
