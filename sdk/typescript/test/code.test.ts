/** Code contexts: persistent state and results of runs. */

import { randomUUID } from "node:crypto";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { afterAll, expect, test } from "vitest";
import { getSandbox, Isolet, type CodeEvent, type Sandbox } from "../src/index.js";

const client = new Isolet();
const made: Sandbox[] = [];

function fresh(): Sandbox {
  const sandbox = getSandbox(client, `code-${randomUUID()}`);
  made.push(sandbox);
  return sandbox;
}

afterAll(async () => {
  await Promise.all(made.map((sandbox) => sandbox.destroy()));
});

test("code interpreter contexts retain variables and imports", async () => {
  const sandbox = fresh();
  const context = await sandbox.createCodeContext({ language: "python", cwd: "/tmp", envVars: { A: "b" } });
  await sandbox.runCode("import math\nx = 20", { context });
  const execution = await sandbox.runCode("print('hi')\nmath.floor(x + 22.5)", { context });
  expect(execution).toMatchObject({ logs: { stdout: ["hi\n"], stderr: [] }, executionCount: 2, died: false });
  expect(execution.error).toBeUndefined();
  expect(execution.results.map((one) => [one.kind, one.text])).toEqual([["result", "42"]]);
  const where = await sandbox.runCode("import os; (os.getcwd(), os.environ['A'])", { context });
  expect(where.results[0]!.text).toBe("('/tmp', 'b')");
  expect((await sandbox.listCodeContexts()).map((one) => one.id)).toEqual([context.id]);
  await sandbox.deleteCodeContext(context.id);
  await sandbox.deleteCodeContext(context.id);
  expect(await sandbox.listCodeContexts()).toEqual([]);
  await expect(sandbox.runCode("1", { context })).rejects.toMatchObject({ code: "no_context" });
});

test("a run has variables of its own, and a structured context returns containers as data", async () => {
  const sandbox = fresh();
  const code = "import os; os.environ.get('GREETING'), os.environ.get('HOME')";
  const own = await sandbox.runCode(code, { env: { GREETING: "hello", HOME: undefined } });
  expect(own.results[0]!.text).toBe("('hello', None)");
  expect((await sandbox.runCode(code)).results[0]!.text).toMatch(/^\(None, '/);
  for (const structured of [true, false]) {
    const context = await sandbox.createCodeContext({ language: "python", structured });
    const { results } = await sandbox.runCode("{'a': [1, 2]}", { context });
    expect(results[0]!.data["application/json"]).toEqual(structured ? { a: [1, 2] } : undefined);
  }
});

test("without a context, each language has its own", async () => {
  const sandbox = fresh();
  await sandbox.runCode("x = 1");
  await sandbox.runCode("const x = 2", { language: "javascript" });
  expect((await sandbox.runCode("x")).results[0]!.text).toBe("1");
  const two = await sandbox.runCode("({ x })", { language: "javascript" });
  expect([two.results[0]!.json, two.results[0]!.formats()]).toEqual([
    { x: 2 },
    ["application/json", "text/plain"],
  ]);
  await sandbox.runCode("x=3", { language: "bash" });
  const three = await sandbox.runCode("echo $x; exit 4", { language: "bash" });
  expect([three.logs.stdout, three.error?.message, three.died]).toEqual([["3\n"], "4", true]);
});

test("an exception in the code is returned, not thrown", async () => {
  const sandbox = fresh();
  const received: string[] = [];
  const onError = (error: { name: string }): void => void received.push(error.name);
  const execution = await sandbox.runCode("print('before')\n1 / 0", { onError });
  expect(execution.error).toMatchObject({ name: "ZeroDivisionError", message: "division by zero" });
  expect(execution.error!.traceback.join("\n")).toContain("1 / 0");
  expect([received, execution.logs.stdout]).toEqual([["ZeroDivisionError"], ["before\n"]]);
});

test("events arrive in order", async () => {
  const sandbox = fresh();
  const code = "import sys\nprint('a')\nprint('b', file=sys.stderr)\ndisplay(3)\nprint('c')\n4";
  const seen: string[] = [];
  const word = (event: CodeEvent): string => {
    if (event.type === "result") return event.result.text!;
    return event.type === "stdout" || event.type === "stderr" ? event.text : event.type;
  };
  for await (const event of sandbox.runCodeStream(code)) seen.push(word(event));
  expect(seen).toEqual(["a\n", "b\n", "3", "c\n", "4", "end"]);
});

test("a run ends at its timeout, by its signal, or when its loop is left", async () => {
  const sandbox = fresh();
  await sandbox.runCode("value = 1");
  expect(await sandbox.runCode("while True: pass", { timeout: 200 })).toMatchObject({ timedOut: true });
  const controller = new AbortController();
  const onStdout = (): void => controller.abort();
  const aborted = sandbox.runCode("print(1)\nwhile True: pass", { onStdout, signal: controller.signal });
  await expect(aborted).rejects.toThrow(/abort/i);
  for await (const event of sandbox.runCodeStream("print(1)\nwhile True: pass")) {
    if (event.type === "stdout") break;
  }
  expect((await sandbox.runCode("value")).results[0]!.text).toBe("1");
  expect(await sandbox.interruptCodeContext("python")).toBe(false);
  await sandbox.restartCodeContext("python");
  expect(await sandbox.runCode("value")).toMatchObject({ fresh: true, error: { name: "NameError" } });
});

test("a run reads the input that was sent with it", async () => {
  const sandbox = fresh();
  expect((await sandbox.runCode("input()", { stdin: "typed\n" })).results[0]!.text).toBe("'typed'");
  expect((await sandbox.runCode("input()")).error!.name).toBe("EOFError");
});

test("TypeScript runs once its types are taken out", async () => {
  const sandbox = fresh();
  // Node strips types since 22.13; for older versions the driver uses a package.
  const from = createRequire(import.meta.url).resolve("typescript");
  await sandbox.writeFile("/workspace/node_modules/typescript/package.json", '{"main":"typescript.js"}');
  await sandbox.writeFile("/workspace/node_modules/typescript/typescript.js", await readFile(from, "utf8"));
  const language = "typescript";
  await sandbox.runCode("interface P { n: number }\nenum E { A = 3 }\nconst p: P = { n: 1 }", { language });
  const execution = await sandbox.runCode("import * as os from 'os'\n(p as P).n + E.A + os.EOL", { language });
  expect([execution.results[0]?.text, execution.error]).toEqual(["'4\\n'", undefined]);
  expect((await sandbox.runCode("let x: = 1", { language })).error!.name).toBe("SyntaxError");
});

test("a session's context has its directory, environment and files", async () => {
  const sandbox = fresh();
  const session = await sandbox.createSession({ cwd: "/usr", env: { OWN: "yes" } });
  const context = await session.createCodeContext();
  const execution = await session.runCode("import os; (os.getcwd(), os.environ['OWN'])", { context });
  expect(execution.results[0]!.text).toBe("('/usr', 'yes')");
  await sandbox.deleteSession(session.id);
  expect(await sandbox.listCodeContexts()).toEqual([]);
});

test("a chart's specification is a result", async () => {
  const sandbox = fresh();
  const chart = { data: [{ type: "bar", y: [1, 2] }], layout: {} };
  const { results } = await sandbox.runCode(
    `class Figure:\n    def _repr_mimebundle_(self, **_):\n        return {"application/vnd.plotly.v1+json": ${JSON.stringify(chart)}}\nFigure()`,
  );
  expect(results[0]!.chart).toEqual(chart);
  expect((await sandbox.runCode("1")).results[0]!.chart).toBeUndefined();
});
