/** Background processes, with a real server. */

import { randomUUID } from "node:crypto";
import { afterAll, expect, test } from "vitest";
import { getSandbox, Isolet, type LogEvent, type Sandbox } from "../src/index.js";

const client = new Isolet();
const made: Sandbox[] = [];

function fresh(): Sandbox {
  const sandbox = getSandbox(client, `processes-${randomUUID()}`);
  made.push(sandbox);
  return sandbox;
}

afterAll(async () => {
  await Promise.all(made.map((sandbox) => sandbox.destroy()));
});

// Promises: J14.
test("a server is started, waited for, followed and killed", async () => {
  const sandbox = fresh();
  const server = await sandbox.startProcess("python3 -u -m http.server --bind 127.0.0.1 8321", {
    processId: "web",
  });
  expect(server).toMatchObject({ id: "web", status: "running", exitCode: undefined });
  expect((await server.waitForLog(/serving http on .* port (\d+)/i)).line).toContain("8321");
  await server.waitForPort(8321, { path: "/", timeout: 10_000 });
  await expect(server.waitForPort(8322, { timeout: 50 })).rejects.toMatchObject({ code: "timeout" });
  await expect(server.waitForExit(50)).rejects.toMatchObject({ code: "timeout" });
  expect((await sandbox.listProcesses()).map((one) => one.id)).toEqual(["web"]);
  await sandbox.killProcess("web");
  expect(await server.getStatus()).toBe("killed");
  await expect(server.waitForLog("never")).rejects.toMatchObject({ code: "process_ended" });
  expect(await sandbox.getProcess("none")).toBeNull();
  expect(await sandbox.cleanupCompletedProcesses()).toBe(1);
  expect(await sandbox.listProcesses()).toEqual([]);
});

// Promises: J14.
test("a log is streamed to its end, in whole characters", async () => {
  const sandbox = fresh();
  const script = "printf '\\xc3'; sleep 0.1; printf '\\xa9\\n'; echo oh >&2; sleep 0.1; exit 3";
  const process = await sandbox.startProcess(["bash", "-c", script]);
  const received: LogEvent[] = [];
  for await (const event of sandbox.streamProcessLogs(process.id)) received.push(event);
  const output = (type: string) => received.filter((event) => event.type === type).map((event) => event.data);
  expect(output("stdout").join("")).toBe("é\n");
  expect(output("stderr").join("")).toBe("oh\n");
  expect(received.at(-1)).toMatchObject({ type: "exit", exitCode: 3, position: 6 });
  expect(await sandbox.getProcessLogs(process.id)).toMatchObject({ stdout: "é\n", stderr: "oh\n", missed: 0 });
  expect((await sandbox.getProcess(process.id))!.status).toBe("failed");
});

// Promises: J14.
test("input reaches a process, and its end", async () => {
  const sandbox = fresh();
  const cat = await sandbox.startProcess("cat", { stdin: true });
  await cat.write("one\n");
  await cat.write(new Uint8Array([0xff, 10]), { eof: true });
  const ended = await cat.waitForExit();
  expect(ended).toMatchObject({ status: "completed", exitCode: 0 });
  expect((await cat.getLogs()).stdout).toBe("one\n\uFFFD\n");
  await expect(cat.write("more")).rejects.toMatchObject({ code: "process_ended" });
});

// Promises: J14.
test("a session's process begins where the session does, and others see it", async () => {
  const sandbox = fresh();
  const dev = await sandbox.createSession({ id: "dev", cwd: "/tmp", env: { A: "1" } });
  const first = await dev.startProcess("pwd; echo $A; sleep 1000");
  await first.waitForLog("1", { stream: "stdout" });
  expect((await first.getLogs()).stdout).toBe("/tmp\n1\n");
  const other = await sandbox.createSession({ id: "other" });
  expect((await other.listProcesses())[0]).toMatchObject({ id: first.id, sessionId: "dev" });
  expect(await sandbox.killAllProcesses()).toBe(1);
});

test("a wait returns groups and checks the exit code", async () => {
  const process = await fresh().startProcess("echo ready on port 8080; exit 3");
  const line = await process.waitForLog(/(?<what>\w+) (\d+)/);
  expect(line).toMatchObject({ groups: ["port 8080", "port", "8080"], namedGroups: { what: "port" } });
  expect((await process.waitForExit(5000, { from: 1, to: 3 })).exitCode).toBe(3);
  await expect(process.waitForExit(5000, { to: 2 })).rejects.toMatchObject({ code: "process_ended" });
});
