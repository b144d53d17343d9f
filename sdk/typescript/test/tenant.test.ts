/** Tenant-wide calls: sessions across sandboxes, lists, events, usage and audit log. */

import { randomUUID } from "node:crypto";
import { afterAll, expect, test } from "vitest";
import { getSandbox, Isolet, type Sandbox, type SandboxEvent, type SandboxOptions } from "../src/node.js";
import { network } from "./network.js";

const client = new Isolet();
const made: Sandbox[] = [];

function fresh(options: SandboxOptions = {}): Sandbox {
  const sandbox = client.sandbox(`tenant-${randomUUID()}`, options);
  made.push(sandbox);
  return sandbox;
}

afterAll(async () => {
  await Promise.all(made.map((sandbox) => sandbox.destroy()));
});

// Promises: Y13.
test("a session is found by its id alone, and ended", async () => {
  const { id: sandbox } = fresh();
  const session = await client.createSession({ sandbox, persistent: true, ttl: "1h", metadata: { for: "tests" } });
  expect(session.id).toMatch(/^sess_[0-9a-f]{12}$/);
  expect((await session.exec("x=5; cd /tmp; echo $x")).stdout).toBe("5\n");
  const again = await client.findSession(session.id);
  expect(again.sandboxId).toBe(sandbox);
  expect((await again.exec("echo $x; pwd")).stdout).toBe("5\n/tmp\n");
  const shell = again.shell();
  expect((await shell.run("echo $x")).stdout).toBe("5\n");
  shell.close();
  await again.writeFile("a.txt", "a");
  const info = await client.sessionInfo(session.id);
  expect(info).toMatchObject({ sandboxId: sandbox, status: "ready", persistent: true, ttl: 3600 });
  expect(info.metadata).toEqual({ for: "tests" });
  expect(info.lastActivity.getTime()).toBeGreaterThanOrEqual(info.createdAt.getTime());
  const ids = [];
  for await (const one of client.listSessions()) ids.push(one.id);
  expect(ids).toContain(session.id);
  await client.deleteSession(session.id);
  await expect(client.findSession(session.id)).rejects.toMatchObject({ code: "no_session" });
  await expect(client.deleteSession(session.id)).rejects.toMatchObject({ code: "no_session" });
});

test("sessions are ended in bulk by filters, and not without one", async () => {
  const { id: sandbox } = fresh();
  const all = await Promise.all([1, 2, 3].map(() => client.createSession({ sandbox })));
  await all[0]!.exec("true");
  // The answer of a command may arrive before the server knows that its shell is idle.
  await expect.poll(async () => (await client.sessionInfo(all[0]!.id)).busy, { timeout: 15_000 }).toBe(false);
  await expect(client.deleteSessions({})).rejects.toMatchObject({ status: 400 });
  expect(await client.deleteSessions({ idle: true, olderThan: "1h" })).toBe(0);
  expect(await client.deleteSessions({ idle: true, olderThan: 0 })).toBeGreaterThanOrEqual(3);
  for await (const { id } of client.listSessions()) expect(all.map((one) => one.id)).not.toContain(id);
});

// Promises: Y13.
test("a sandbox is made as it was asked for, listed, changed and put to sleep", async () => {
  const options = { memoryMib: 128, cpuMillis: 500, pids: 64, ttl: "2h", env: { A: "1" }, metadata: { of: "me" } };
  const sandbox = fresh({ ...options, persistent: true });
  await expect(sandbox.info()).rejects.toMatchObject({ code: "no_sandbox" });
  expect((await sandbox.exec("echo $A; sleep 1000 &")).stdout).toBe("1\n");
  const info = await sandbox.info();
  expect(info).toMatchObject({ state: "running", image: "host", memoryMib: 128, cpuMillis: 500, pids: 64, ttl: 7200 });
  expect(info).toMatchObject({ metadata: { of: "me" }, envNames: ["A"], sleepAfter: 600, persistent: true });
  expect(info.expiresAt!.getTime() - info.createdAt.getTime()).toBe(7_200_000);
  expect(info.usage!.memoryBytes).toBeGreaterThan(0);
  const listed = [];
  for await (const one of client.listSandboxes()) listed.push(one.id);
  expect(listed).toContain(sandbox.id);
  const changed = await sandbox.update({ pids: 99, env: { A: undefined, B: "2" }, sleepAfter: 0, ttl: 0 });
  expect(changed).toMatchObject({ pids: 99, envNames: ["B"], sleepAfter: undefined, ttl: undefined });
  await sandbox.createSession({ id: "other" });
  const sessions = [];
  for await (const one of sandbox.listSessions()) sessions.push(one.id);
  expect(sessions).toEqual(["default", "other"]);
  expect((await sandbox.sleep()).state).toBe("sleeping");
  expect((await sandbox.exec("true")).lost).toContain("processes");
});

// Promises: Y13.
test("events arrive in order, across a lost connection, until the end", async () => {
  const cable = await network(client.url);
  const sandbox = fresh();
  await sandbox.exec("true");
  const far = getSandbox(new Isolet({ url: cable.url }), sandbox.id);
  const seen: SandboxEvent[] = [];
  for await (const event of far.events({ after: 0 })) {
    seen.push(event);
    if (event.type === "command_exited" && event.code === 0) {
      cable.cut();
      await sandbox.exec("(exit 3)");
    }
    if (event.code === 3) await sandbox.destroy();
  }
  cable.close();
  // The server has no events from before its start.
  if (seen[0]?.type === "gap") expect(seen.shift()!.missed).toHaveLength(2);
  const types = seen.map(({ type }) => type);
  expect(types[0]).toBe("created");
  expect(types.at(-1)).toBe("destroyed");
  expect(seen.filter(({ code }) => code === 3)).toHaveLength(1);
  expect(types).not.toContain("gap");
  expect(seen.map(({ id }) => id)).toEqual([...new Set(seen.map(({ id }) => id))].sort((a, b) => a! - b!));
  for await (const { sandbox: id } of client.events({ after: seen[0]!.id! - 1 })) {
    expect(id).toBe(sandbox.id);
    break;
  }
});

// Promises: Y12.
test("the audit log covers deleted sandboxes, and usage covers all", async () => {
  const sandbox = fresh();
  const before = await client.usage();
  await sandbox.exec("for i in {1..200000}; do :; done");
  await sandbox.destroy();
  const events: string[] = [];
  let last = 0;
  // The server writes an entry when a call ends.
  await expect
    .poll(async () => {
      events.length = 0;
      for await (const { seq, event, sandbox: of, at, line } of client.audit({ sandbox: sandbox.id })) {
        expect(of).toBe(sandbox.id);
        expect(JSON.parse(line)).toMatchObject({ seq, hmac: /^[0-9a-f]{64}$/ });
        expect(Math.abs(at.getTime() - Date.now())).toBeLessThan(600_000);
        events.push(event);
        last = seq;
      }
      return events;
    }, { timeout: 15_000 })
    .toContain("sandbox.destroyed");
  expect(events).toEqual(expect.arrayContaining(["sandbox.created", "exec.start", "sandbox.destroy"]));
  expect(last).toBeGreaterThan(0);
  const after = await client.usage();
  expect(after.endedSandboxes).toBeGreaterThan(before.endedSandboxes);
  expect(after.cpuSeconds).toBeGreaterThan(before.cpuSeconds);
});

test("a command's output is iterated, and leaving the loop cancels it", async () => {
  const sandbox = fresh();
  const pieces: unknown[] = [];
  for await (const event of sandbox.execStream("echo a; echo b >&2; exit 4")) {
    pieces.push(event.type === "complete" ? event.exitCode : [event.type, event.data]);
  }
  expect(pieces).toEqual([["stdout", "a\n"], ["stderr", "b\n"], 4]);
  const session = await sandbox.getSession("stays");
  for await (const event of session.execStream("echo $$; sleep 1000")) {
    expect(event.type).toBe("stdout");
    break;
  }
  expect((await session.exec("echo free")).stdout).toBe("free\n");
});
