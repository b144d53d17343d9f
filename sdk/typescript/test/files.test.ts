/** Files: writing, ranges, search, watch and archives. */

import { randomUUID } from "node:crypto";
import { afterAll, expect, test } from "vitest";
import { getSandbox, Isolet, type FileEvent, type Sandbox } from "../src/index.js";

const client = new Isolet();
const sandbox: Sandbox = getSandbox(client, `files-${randomUUID()}`);

afterAll(() => sandbox.destroy());

// Promises: Y13.
test("a file is written with a mode, added to, and read in parts and in base64", async () => {
  const binary = Uint8Array.from({ length: 256 }, (_, at) => at);
  await sandbox.writeFile("parts/a.bin", binary, { mode: 0o750, fsync: true });
  expect(await sandbox.stat("parts/a.bin")).toMatchObject({ size: 256, mode: "0750", type: "file" });
  const base64 = Buffer.from(binary).toString("base64");
  expect(await sandbox.readFile("parts/a.bin", { encoding: "base64" })).toEqual({ content: base64, size: 256 });
  await sandbox.writeFile("parts/b.bin", base64, { encoding: "base64" });
  expect((await sandbox.exec("cmp parts/a.bin parts/b.bin")).exitCode).toBe(0);

  await sandbox.writeFile("parts/text", "0123456789");
  await sandbox.writeFile("parts/text", "abc", { append: true });
  expect(await sandbox.readFile("parts/text", { start: 8, length: 3 })).toEqual({ content: "89a", size: 3 });
  expect((await sandbox.readFile("parts/text", { start: 10 })).content).toBe("abc");
  const stream = await sandbox.readFileStream("parts/text", { length: 4 });
  expect(await new Response(stream).text()).toBe("0123");
  await expect(sandbox.readFile("parts/text", { start: 99 })).rejects.toMatchObject({ status: 416 });
  await expect(sandbox.readFile("parts/text", { length: 0 })).rejects.toMatchObject({ code: "bad_range" });
  // A literal segment of the path, not its parent.
  await expect(sandbox.readFile("parts/../parts/text")).resolves.toMatchObject({ size: 13 });
});

test("files are copied, moved without overwriting, and their modes change", async () => {
  await sandbox.writeFile("one/a", "a");
  await sandbox.exec("ln -s a one/link");
  expect(await sandbox.copyFile("one", "two")).toMatchObject({ type: "directory", path: "/workspace/two" });
  expect(await sandbox.stat("two/link", { follow: false })).toMatchObject({ type: "symlink", target: "a" });
  expect((await sandbox.stat("two/link")).type).toBe("file");
  await sandbox.writeFile("one/b", "b");
  await expect(sandbox.moveFile("one/b", "two/a", { replace: false })).rejects.toMatchObject({ code: "exists" });
  await sandbox.moveFile("one/b", "two/a");
  expect((await sandbox.readFile("two/a")).content).toBe("b");
  expect((await sandbox.chmod("two/a", 0o600)).mode).toBe("0600");
  const found = await sandbox.listFiles("/workspace", { recursive: true, glob: "two/*" });
  expect(found.map(({ path }) => path)).toEqual(["/workspace/two/a", "/workspace/two/link"]);
});

// Promises: Y13.
test("a search finds lines, with context lines", async () => {
  await sandbox.writeFile("src/a.py", "first\nNeedle = 1\nlast\n");
  await sandbox.writeFile("src/b.txt", "need.e\n");
  const found = await sandbox.search("need.e", { path: "src", ignoreCase: true, context: 1 });
  expect(found).toMatchObject({ more: false, files: 2, binary: 0, unread: 0 });
  expect(found.lines.map(({ path, line, text, spans, context }) => [path, line, text, spans, context])).toEqual([
    ["/workspace/src/a.py", 1, "first", [], true],
    ["/workspace/src/a.py", 2, "Needle = 1", [[0, 6]], false],
    ["/workspace/src/a.py", 3, "last", [], true],
    ["/workspace/src/b.txt", 1, "need.e", [[0, 6]], false],
  ]);
  const literal = await sandbox.search("need.e", { path: "src", literal: true, glob: "*.txt", limit: 1 });
  expect(literal.lines).toHaveLength(1);
});

// Promises: Y13.
test("changes since a version are reported, and an unknown version is refused", async () => {
  await sandbox.mkdir("compared/sub");
  await sandbox.writeFile("compared/sub/old", "x");
  const path = "compared";
  const before = await sandbox.changes("now", { path });
  expect(before).toMatchObject({ changes: [], more: false });
  await sandbox.moveFile("compared/sub", "compared/moved");
  await sandbox.writeFile("compared/note.txt", "x");
  const after = await sandbox.changes(before.version, { path, exclude: ["*.txt"] });
  expect(after.changes).toEqual([
    { path: "/workspace/compared/moved", change: "created", type: "directory" },
    { path: "/workspace/compared/moved/old", change: "created", type: "file" },
    { path: "/workspace/compared/sub", change: "deleted", type: "directory" },
    { path: "/workspace/compared/sub/old", change: "deleted", type: "file" },
  ]);
  expect((await sandbox.changes(after.version, { path })).changes).toEqual([]);
  await expect(sandbox.changes(after.version)).rejects.toMatchObject({ code: "version_expired", status: 410 });
});

// Promises: Y13.
test("a watch reports every change from the moment it resolves", async () => {
  await sandbox.mkdir("watched/deep");
  const watch = await sandbox.watch("watched", { recursive: true });
  expect(watch.directories).toBe(2);
  await sandbox.writeFile("watched/deep/a", "a");
  await sandbox.moveFile("watched/deep/a", "watched/b");
  const seen: FileEvent[] = [];
  for await (const event of watch) {
    seen.push(event);
    if (event.to === "/workspace/watched/b") break;
  }
  expect(seen.map(({ path }) => path)).toContain("/workspace/watched/deep/a");
  // Leaving the loop early closes the watch.
  for await (const event of watch) throw new Error(`event for ${event.path} after the end`);

  const watchToEnd = await sandbox.watch("watched");
  await sandbox.deleteFile("watched", { recursive: true });
  const types = [];
  for await (const { type } of watchToEnd) types.push(type);
  expect(types.at(-1)).toBe("gone");

  const signals = new AbortController();
  const given = await sandbox.watch("/workspace", { signal: signals.signal });
  const left = (async () => { for await (const _ of given); })();
  signals.abort();
  await expect(left).rejects.toMatchObject({ name: "AbortError" });
  const closed = await sandbox.watch("/workspace");
  const waiting = (async () => { for await (const _ of closed); })();
  closed.close();
  await waiting;
  await expect(sandbox.watch("none")).rejects.toMatchObject({ code: "not_found" });
});

// Promises: Y13.
test("a directory is saved and restored as an archive", async () => {
  await sandbox.writeFile("tree/deep/a.sh", "echo a", { mode: 0o755 });
  for (const compress of [false, true]) {
    const archive = await sandbox.readArchive("tree", { compress });
    await sandbox.writeArchive(archive, `back-${compress}`);
    expect((await sandbox.stat(`back-${compress}/deep/a.sh`)).mode).toBe("0755");
  }
  const bytes = new Uint8Array(await new Response(await sandbox.readArchive("tree")).arrayBuffer());
  await sandbox.writeArchive(bytes, "again");
  expect((await sandbox.exec("diff -r tree again")).exitCode).toBe(0);
  await expect(sandbox.writeArchive(new TextEncoder().encode("no archive".repeat(99)))).rejects.toMatchObject({
    status: 400,
  });
});

test("a session's file calls see what it was granted", async () => {
  await sandbox.writeFile("granted/a", "a");
  const session = await sandbox.createSession({ fileAccess: { read: ["granted"] }, metadata: { a: 1 }, ttl: "1h" });
  expect((await session.search("a")).lines.map(({ path }) => path)).toEqual(["/workspace/granted/a"]);
  await expect(session.copyFile("granted/a", "granted/b")).rejects.toMatchObject({ status: 403 });
  await expect(session.stat("src")).rejects.toMatchObject({ code: "not_found" });
  expect(await session.info()).toMatchObject({ id: session.id, ttl: 3600, metadata: { a: 1 }, busy: false });
});

test("a watch reports selected changes, and a read insists on a file", async () => {
  await sandbox.mkdir("selected/target");
  const watch = await sandbox.watch("selected", { recursive: true, include: ["*.rs"], exclude: ["target"] });
  for (const name of ["a.py", "target/b.rs", "c.rs"]) await sandbox.writeFile(`selected/${name}`, "x");
  await sandbox.deleteFile("selected", { recursive: true });
  const seen = new Set<string>();
  for await (const event of watch) if (event.type !== "gone") seen.add(event.path);
  expect([...seen]).toEqual(["/workspace/selected/c.rs"]);
  await sandbox.mkdir("directory");
  await expect(sandbox.readFile("directory")).rejects.toMatchObject({ code: "wrong_kind" });
});

test("a conditional write replaces only the version that was read", async () => {
  const first = await sandbox.writeFile("conditional", "first");
  expect((await sandbox.stat("conditional")).etag).toBe(first.etag);
  // Another client writes.
  await sandbox.exec("echo other > conditional");
  const late = sandbox.writeFile("conditional", "second", { ifMatch: first.etag! });
  await expect(late).rejects.toMatchObject({ status: 412, code: "file_changed" });
  expect((await sandbox.readFile("conditional")).content).toBe("other\n");
  const { etag } = await sandbox.stat("conditional");
  const second = await sandbox.writeFile("conditional", "second", { ifMatch: etag! });
  expect(second.etag).not.toBe(etag);
  await expect(sandbox.writeFile("missing", "x", { ifMatch: "*" })).rejects.toMatchObject({ code: "file_changed" });
});
