/** The built package: its entry points, and its examples. */

import { execFile } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { beforeAll, expect, test } from "vitest";

const run = promisify(execFile);
const root = fileURLToPath(new URL("..", import.meta.url));

beforeAll(async () => {
  await run("node", ["node_modules/typescript/bin/tsc", "-p", "tsconfig.build.json"], { cwd: root });
});

/** Packages that a module imports, directly or through other files of this package. */
function externalImports(file: string, seen = new Set<string>()): Set<string> {
  const found = new Set<string>();
  if (seen.has(file)) return found;
  seen.add(file);
  for (const [, name = ""] of readFileSync(file, "utf8").matchAll(/(?:import|from) "([^"]+)"/g)) {
    if (!name.startsWith(".")) found.add(name);
    else for (const more of externalImports(join(dirname(file), name), seen)) found.add(more);
  }
  return found;
}

test("in browsers the package has no dependencies, in Node only ws", () => {
  const { exports } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  const at = (path: string): string[] => [...externalImports(join(root, path))];
  expect(at(exports["."].default)).toEqual([]);
  expect(at(exports["./xterm"].default)).toEqual([]);
  expect(at(exports["."].node)).toEqual(["ws"]);
});

/** Expected output of each example. */
const EXAMPLES = {
  "figure.mjs": "100 in all\na figure with 3 bars\nerror of the code: ZeroDivisionError\n",
  "copy.mjs":
    "cloned main to /workspace/code/project\n/workspace/code/project/main.py:2: print('copied')  # later: more\ncopied\nfirst sandbox: sandbox.destroy",
  "server.mjs":
    '200 <h1>here</h1>\nwithout a key: 200\nlog: "GET /index.html HTTP/1.1" 200 -\nstatus: killed\n',
  "shell.mjs": "done after 1 fix: 2 words\n/workspace/project\n[0]\n",
  "terminal.mjs": "first: connected\nfirst: closed\nthe answer is 42\nexited with 3\n",
};

test.each(Object.entries(EXAMPLES))("the example %s runs", async (name, says) => {
  const { stdout } = await run("node", [`examples/${name}`], { cwd: root });
  expect(stdout).toContain(says);
}, 60_000);

test("every example is run", () => {
  expect(readdirSync(join(root, "examples")).sort()).toEqual(Object.keys(EXAMPLES).sort());
});
