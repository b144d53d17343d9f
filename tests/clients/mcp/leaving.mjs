// Clients that leave in every way, also in the middle of a call. Prints what failed, or `all answered`.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { call, connected, gone, key, program, url, way } from "./client.mjs";

const watcher = await connected();
const exists = async (path) => !(await call(watcher, "file_read", { path })).failed;
async function until(done) {
  const end = Date.now() + 60_000;
  while (!(await done())) {
    assert.ok(Date.now() < end, `never: ${done}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

let number = 0;
/** A client in the middle of a command, and the end of its call. */
async function busy() {
  const client = await connected();
  const file = `/tmp/begun-${++number}`;
  const ended = call(client, "shell_run", { command: `touch ${file}; sleep 60` }).catch((error) => error);
  await until(() => exists(file));
  return { client, ended };
}

// At rest, with and without a goodbye.
await gone(await connected());
await (await connected()).close();
// In the middle of a call.
for (const leave of [gone, (client) => client.close()]) {
  const { client, ended } = await busy();
  await leave(client);
  await ended;
}
if (way === "stdio") {
  // Before its first message, and in the middle of one.
  for (const text of ["", '{"jsonrpc": "2.0", "id": 1, "meth']) {
    const env = { ISOLET_URL: url, ISOLET_API_KEY: key };
    const child = spawn(program, ["mcp"], { env, stdio: ["pipe", "pipe", "pipe"] });
    let said = "";
    child.stderr.on("data", (data) => (said += data));
    child.stdin.end(text);
    const code = await new Promise((resolve) => child.on("close", resolve));
    assert.deepEqual([code, said], [0, ""]);
  }
}
await gone(watcher);
console.log("all answered");
