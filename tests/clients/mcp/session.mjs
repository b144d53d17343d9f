// A session of the official MCP client with Isolet's tools. Prints what failed, or `all answered`.
import assert from "node:assert/strict";
import { call, connected, gone, key, url } from "./client.mjs";

const shells = async () => {
  const response = await fetch(`${url}/v1/sandboxes/tools/sessions`, { headers: { authorization: `Bearer ${key}` } });
  return (await response.json()).map((one) => one.id).filter((id) => id.startsWith("mcp-"));
};

const one = await connected();
const { tools } = await one.listTools();
const names = tools.map((tool) => tool.name);
for (const name of ["sandbox_list", "sandbox_create", "shell_run", "file_read", "file_write"]) {
  assert.ok(names.includes(name), `${name} is among ${names}`);
}
assert.ok(tools.every((tool) => tool.description && tool.inputSchema.type === "object"));

// The state of one call is there for the client's next call, and for no other client.
assert.equal((await call(one, "shell_run", { command: "cd /tmp; x=5; f() { echo from f; }" })).text, "[exit 0]");
const kept = await call(one, "shell_run", { command: "pwd; echo $x; f; echo oops >&2; false" });
assert.equal(kept.text, "/tmp\n5\nfrom f\n[stderr]\noops\n[exit 1]");
assert.equal(kept.data.exit_code, 1);
assert.equal(kept.failed, false);
const two = await connected();
assert.equal((await call(two, "shell_run", { command: "pwd; echo \"x=$x\"" })).text, "/workspace\nx=\n[exit 0]");
assert.equal((await shells()).length, 2);

// A command that takes too long is interrupted, and its shell stays.
const slow = await call(one, "shell_run", { command: "sleep 60", timeout_ms: 200 });
assert.equal(slow.data.timed_out, true);
assert.equal((await call(one, "shell_run", { command: "echo $x" })).text, "5\n[exit 0]");
// So is a command that the client cancels.
const up = new AbortController();
const given = call(one, "shell_run", { command: "touch begun; sleep 60" }, { signal: up.signal });
const refused = assert.rejects(given);
for (;;) {
  const { failed } = await call(two, "file_read", { path: "/tmp/begun" });
  if (!failed) break;
  await new Promise((resolve) => setTimeout(resolve, 20));
}
up.abort();
await refused;
assert.equal((await call(one, "shell_run", { command: "echo again" })).text, "again\n[exit 0]");
const cut = await call(one, "shell_run", { command: "seq 100000", max_bytes: 1000 });
assert.ok(cut.data.truncated.stdout_bytes > 500000 && cut.text.includes("cut"), cut.text.slice(-200));

// Files.
await call(one, "file_write", { path: "src/a b?.txt", content: "grüße\nneedle\n" });
assert.equal((await call(one, "file_read", { path: "src/a b?.txt" })).text, "grüße\nneedle\n");
assert.equal((await call(one, "file_read", { path: "src/a b?.txt", max_bytes: 4 })).text, "gr\u00fc\n[bytes 0 to 4 of 15]");
await call(one, "file_write", { path: "src/a b?.txt", content: "end\n", append: true });
const found = await call(one, "file_search", { pattern: "^need", glob: "*.txt" });
assert.equal(found.data.lines[0].line, 2);
const listed = await call(one, "file_list", { path: "src" });
assert.deepEqual(listed.data.entries.map((entry) => [entry.name, entry.size]), [["a b?.txt", 19]]);
const png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
await call(one, "file_write", { path: "a.png", content: png, encoding: "base64" });
const picture = (await call(one, "file_read", { path: "a.png" })).blocks[0];
assert.deepEqual([picture.type, picture.mimeType, picture.data], ["image", "image/png", png]);
assert.equal((await call(one, "file_delete", { path: "src", recursive: true })).failed, false);
const missing = await call(one, "file_read", { path: "src/a b?.txt" });
assert.ok(missing.failed && missing.text.includes("404"), missing.text);
const wrong = await one.callTool({ name: "shell_run", arguments: { comand: "ls" } }).catch((error) => error);
assert.ok(wrong instanceof Error || wrong.isError, "a wrong name is refused");

// Sandboxes.
const made = await call(one, "sandbox_create", { sandbox: "other", memory_mib: 256, ttl_s: 600 });
assert.equal(made.data.memory_mib, 256);
assert.equal((await call(one, "shell_run", { sandbox: "other", command: "ls" })).text, "[exit 0]");
const all = await call(one, "sandbox_list");
assert.deepEqual(all.data.sandboxes.map((sandbox) => sandbox.id).sort(), ["other", "tools"]);

// Snapshots.
await call(one, "file_write", { sandbox: "other", path: "f", content: "old" });
const point = await call(one, "snapshot_create", { sandbox: "other", name: "point", ttl_s: 600 });
assert.equal(point.data.name, "point");
await call(one, "file_write", { sandbox: "other", path: "f", content: "new" });
const listing = await call(one, "snapshot_list", { sandbox: "other" });
assert.deepEqual(listing.data.snapshots.map((each) => each.name), ["point"]);
const restored = await call(one, "snapshot_restore", { sandbox: "other", snapshot: "point" });
assert.equal(restored.data.state, "running", restored.text);
assert.equal((await call(one, "file_read", { sandbox: "other", path: "f" })).text, "old");
const copies = await call(one, "sandbox_fork", { sandbox: "other", count: 2 });
assert.equal(copies.data.forks.length, 2);
for (const copy of copies.data.forks) await call(one, "sandbox_delete", { sandbox: copy.id });
await call(one, "sandbox_create", { sandbox: "copy", snapshot: "point" });
assert.equal((await call(one, "file_read", { sandbox: "copy", path: "f" })).text, "old");
await call(one, "sandbox_delete", { sandbox: "copy" });
assert.equal((await call(one, "sandbox_pause", { sandbox: "other" })).data.state, "paused");
assert.ok((await call(one, "shell_run", { sandbox: "other", command: "ls" })).failed);
assert.equal((await call(one, "sandbox_resume", { sandbox: "other" })).data.state, "running");
assert.equal((await call(one, "snapshot_delete", { snapshot: "point" })).failed, false);
assert.ok((await call(one, "snapshot_delete", { snapshot: "point" })).failed);

assert.equal((await call(one, "sandbox_delete", { sandbox: "other" })).failed, false);
assert.ok((await call(one, "sandbox_info", { sandbox: "other" })).failed);

// The shells of a client that disconnects end.
for (const client of [one, two]) await gone(client);
const until = Date.now() + 60_000;
while ((await shells()).length > 0) {
  assert.ok(Date.now() < until, `left: ${await shells()}`);
  await new Promise((resolve) => setTimeout(resolve, 20));
}
console.log("all answered");
