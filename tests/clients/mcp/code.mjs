// Edits of files, code, names of arguments and hints. Prints what failed, or `all answered`.
import assert from "node:assert/strict";
import { call, connected, gone } from "./client.mjs";

const one = await connected();
const said = async (name, args) => {
  const answer = await call(one, name, args);
  assert.ok(!answer.failed, answer.text);
  return answer;
};
const refused = async (name, args) => {
  const answer = await call(one, name, args);
  assert.ok(answer.failed, `${name} is not refused: ${answer.text}`);
  return answer.text;
};
const read = async (path) => (await said("file_read", { path })).text;

// The same thing has the same name in every tool.
const { tools } = await one.listTools();
const names = new Set(tools.flatMap((tool) => Object.keys(tool.inputSchema.properties ?? {})));
for (const old of ["id", "base64", "body", "shell", "limit", "max_output_bytes"]) {
  assert.ok(!names.has(old), `${old} is an argument`);
}
const withSandbox = tools.filter((tool) => "sandbox" in (tool.inputSchema.properties ?? {}));
const without = tools.filter((tool) => !withSandbox.includes(tool)).map((tool) => tool.name);
assert.deepEqual(without.sort(), ["sandbox_list", "snapshot_delete"]);
for (const tool of ["file_write", "process_input", "port_fetch"]) {
  assert.ok("content" in tools.find(({ name }) => name === tool).inputSchema.properties, tool);
}

// An edit replaces one occurrence that the client means, and nothing else.
await said("file_write", { path: "a.py", content: "x = 1\ny = 1\nprint('grüße')\n" });
await said("shell_run", { command: "chmod 750 a.py" });
await said("file_edit", { path: "a.py", old_string: "y = 1", new_string: "y = 2" });
assert.equal(await read("a.py"), "x = 1\ny = 2\nprint('grüße')\n");
assert.equal((await said("shell_run", { command: "stat -c %a a.py" })).text, "750\n[exit 0]");
await said("file_edit", { path: "a.py", old_string: "y = 2\nprint('grüße')\n", new_string: "y = 1\n" });
const twice = await refused("file_edit", { path: "a.py", old_string: "= 1", new_string: "= 3" });
assert.match(twice, /occurs 2 times in a\.py, on lines 1, 2/);
assert.match(await refused("file_edit", { path: "a.py", old_string: "z", new_string: "w" }), /does not occur in a\.py/);
assert.equal(await read("a.py"), "x = 1\ny = 1\n");
const all = await said("file_edit", { path: "a.py", old_string: "= 1", new_string: "= 3", replace_all: true });
assert.equal(all.text, "replaced 2 occurrences in a.py");
assert.equal(await read("a.py"), "x = 3\ny = 3\n");
assert.match(await refused("file_edit", { path: "none", old_string: "a", new_string: "b" }), /404 not_found/);
await said("file_write", { path: "b.bin", content: "AP8=", encoding: "base64" });
assert.match(await refused("file_edit", { path: "b.bin", old_string: "a", new_string: "b" }), /not UTF-8/);
assert.match(await refused("file_write", { path: "b.bin", content: "?", encoding: "base64" }), /not valid base64/);
await said("file_write", { path: "empty", content: "" });
assert.match(await refused("file_edit", { path: "empty", old_string: "a", new_string: "b" }), /file_write/);
await said("shell_run", { command: "mkdir -p folder" });
assert.match(await refused("file_edit", { path: "folder", old_string: "a", new_string: "b" }), /wrong_kind/);

// Of edits at the same time none is lost: one that comes too late is refused, and its file is read again.
const lines = [...Array(12).keys()];
await said("file_write", { path: "list", content: lines.map((n) => `line ${n};\n`).join("") });
let conflicts = 0;
await Promise.all(lines.map(async (n) => {
  for (;;) {
    const { failed, text } = await call(one, "file_edit", { path: "list", old_string: `line ${n};`, new_string: `done ${n};` });
    if (!failed) return;
    assert.match(text, /412 file_changed/);
    conflicts += 1;
  }
}));
assert.equal(await read("list"), lines.map((n) => `done ${n};\n`).join(""));

// Code keeps its variables. Contexts have their own, and an exception has its traceback.
assert.equal((await said("code_run", { code: "x = 41\nprint('out')\nx + 1" })).text, "out\n42");
assert.equal((await said("code_run", { code: "x" })).text, "41");
const other = { code: "x = 1\nx", context: "other" };
assert.equal((await said("code_run", other)).text, "1");
assert.equal((await said("code_run", { code: "x" })).text, "41");
// A client has its own variables, and does not wait behind the code of another one.
const two = await connected();
assert.match((await call(two, "code_run", { code: "x" })).text, /NameError/);
await said("shell_run", { command: "rm -f go; mkfifo go" });
const waiting = said("code_run", { code: "open('go').read()" });
assert.equal((await call(two, "code_run", { code: "open('go', 'w').write('went'); 7" })).text, "7");
assert.equal((await waiting).text, "'went'");
const bash = { code: "echo $GREETING; read -r line; echo \"<$line>\"", language: "bash", env: { GREETING: "hello" }, stdin: "typed\n" };
assert.equal((await said("code_run", bash)).text, "hello\n<typed>\n");
const failed = await said("code_run", { code: "def f():\n    raise ValueError('no')\nf()" });
assert.match(failed.text, /Traceback[\s\S]*ValueError: no$/);
assert.equal(failed.data.exception.name, "ValueError");
const slow = await said("code_run", { code: "import time\ntime.sleep(60)", timeout_ms: 300 });
assert.equal(slow.data.timed_out, true);
assert.equal((await said("code_run", { code: "x" })).text, "41");
const cut = await said("code_run", { code: "print('y' * 100000)", max_bytes: 1000 });
assert.ok(cut.text.length < 2000 && cut.text.includes("output was cut"), cut.text);

// A chart is an image.
const png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const chart = `
import base64
class Chart:
    def _repr_png_(self): return base64.b64decode("${png}")
Chart()`;
const blocks = (await said("code_run", { code: chart })).blocks;
assert.deepEqual([blocks[1].type, blocks[1].mimeType, blocks[1].data], ["image", "image/png", png]);

const contexts = async () => (await said("context_list")).data.contexts.map((each) => each.id);
const { context } = (await said("code_run", { code: "x" })).data;
assert.ok((await contexts()).includes(context) && (await contexts()).includes("other"), String(await contexts()));
await said("context_restart", { context });
assert.match((await said("code_run", { code: "x" })).text, /NameError/);
await said("context_delete", { context: "other" });
assert.match(await refused("context_delete", { context: "other" }), /404 no_context/);
assert.match(await refused("code_run", { code: "1", language: "cobol" }).catch(String), /cobol/);

// Hints name tools.
const missing = await refused("sandbox_info", { sandbox: "never-was" });
assert.match(missing, /404 no_sandbox[\s\S]*sandbox_create/);
assert.ok(!missing.includes("/v1/"), missing);
await said("sandbox_pause");
const paused = await refused("shell_run", { command: "true" });
assert.match(paused, /sandbox_resume/);
assert.ok(!paused.includes("/v1/"), paused);
await said("sandbox_resume");
// The contexts of a client that leaves end with its shell.
const before = (await contexts()).length;
await gone(two);
while ((await contexts()).length === before) await new Promise((resolve) => setTimeout(resolve, 20));
assert.ok((await contexts()).includes(context), "those of another client stay");
await gone(one);
console.log("all answered");
