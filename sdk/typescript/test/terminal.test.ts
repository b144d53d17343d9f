/** Terminals in Node, with a real server. */

import { randomUUID } from "node:crypto";
import { afterAll, expect, test } from "vitest";
import { getSandbox, Isolet, openTerminal, type Sandbox, type SandboxOptions } from "../src/node.js";
import { network } from "./network.js";

const client = new Isolet();
const made: Sandbox[] = [];

function fresh(options: SandboxOptions = {}, through = client): Sandbox {
  const sandbox = getSandbox(through, `terminals-${randomUUID()}`, options);
  made.push(sandbox);
  return sandbox;
}

afterAll(async () => {
  await Promise.all(made.map((sandbox) => sandbox.destroy()));
});

test("a script types, waits for output, and receives the exit code", async () => {
  const terminal = fresh().terminal({ cols: 100, rows: 30 });
  const states: string[] = [];
  terminal.on("state", (state) => states.push(state));
  terminal.write("stty size; echo $((6*7))\n");
  await terminal.waitFor(/^30 100\r$/m);
  expect(await terminal.waitFor(/^42\r$/m)).toContain("42");
  terminal.resize(90, 20);
  terminal.write("stty size\n");
  await terminal.waitFor("20 90");
  terminal.write("exit 5\n");
  expect(await terminal.exited()).toEqual({ code: 5 });
  expect(states).toEqual(["connected", "closed"]);
  expect(() => terminal.write("x")).toThrow(expect.objectContaining({ code: "closed" }));
});

test("another program runs instead of bash, and its signal is reported", async () => {
  const terminal = fresh().terminal({ shell: "python3", args: ["-c", "input('name? '); import os; os.kill(os.getpid(), 15)"] });
  await terminal.waitFor("name? ");
  terminal.write("x\n");
  expect(await terminal.exited()).toEqual({ code: 143, signal: "SIGTERM" });
});

// Promises: N4.
test("output can be iterated, and a slow reader learns what it missed", async () => {
  const sandbox = fresh();
  await sandbox.writeFile("lines.sh", "stty -onlcr; seq 1 700000; exit 0");
  const terminal = sandbox.terminal({ shell: "bash", args: ["/workspace/lines.sh"] });
  let missed = 0;
  terminal.on("snapshot", (snapshot) => (missed += snapshot.missed));
  const paused = new Promise<void>((seen) => terminal.on("state", (state) => state === "paused" && seen()));
  let text = "";
  for await (const part of terminal) {
    // So slow that the terminal is paused.
    if (text === "") await paused;
    text += new TextDecoder().decode(part);
  }
  const wanted = Array.from({ length: 700_000 }, (_, i) => `${i + 1}\n`).join("");
  expect(text.length + missed).toBe(wanted.length);
  expect(text.slice(-1000)).toBe(wanted.slice(-1000));
});

test("a viewer watches without input", async () => {
  const session = await fresh().createSession({ id: "dev" });
  const editor = session.terminal({ name: "editor" });
  await new Promise<void>((ready) => editor.once("ready", ready));
  const viewer = session.terminal({ mode: "view", name: "viewer" });
  const clients = new Promise((seen) => {
    editor.on("clients", (all) => all.length === 2 && seen(all.map(({ name, mode }) => [name, mode])));
  });
  expect(await clients).toEqual([
    ["editor", "edit"],
    ["viewer", "view"],
  ]);
  expect(() => viewer.write("echo no\n")).toThrow(expect.objectContaining({ code: "view_only" }));
  editor.write("echo se''en\n");
  await viewer.waitFor(/^seen\r$/m);
  viewer.close();
  editor.close();
});

// Promises: N3.
test("a terminal continues at the same byte after a lost connection", async () => {
  const cable = await network(client.url);
  const own = new Isolet({ url: cable.url });
  const sandbox = fresh();
  await sandbox.exec("true");
  const terminal = getSandbox(own, sandbox.id).terminal({ reconnect: { initialDelayMs: 10, maxDelayMs: 50 } });
  const states: string[] = [];
  terminal.on("state", (state) => states.push(state));
  let next: number | undefined;
  terminal.on("data", (bytes, offset) => {
    if (next !== undefined) expect(offset).toBe(next);
    next = offset + bytes.length;
  });
  terminal.write("value=1\n");
  await terminal.waitFor("value=1");
  terminal.write("for i in $(seq 1 200); do echo \"line $i.\"; sleep 0.01; done\n");
  const reconnections = (): number => states.filter((state) => state === "reconnecting").length;
  for (const line of [20, 60, 100, 140]) {
    await terminal.waitFor(`line ${line}.`);
    const before = reconnections();
    cable.cut();
    // A client that is slow has seen the next line, too, and would cut nothing.
    const isBack = (): boolean => reconnections() > before && terminal.state === "connected";
    await expect.poll(isBack, { timeout: 15_000 }).toBe(true);
  }
  const shown = await terminal.waitFor("line 200.");
  for (let line = 141; line <= 200; line++) expect(shown.split(`line ${line}.`)).toHaveLength(2);
  expect(reconnections()).toBeGreaterThanOrEqual(4);
  terminal.close();
  cable.close();
});

test("a permanent error is reported at once", async () => {
  const wrong = new Isolet({ url: client.url, apiKey: "isolet_wrong" });
  const terminal = getSandbox(wrong, "nobodys").terminal();
  const error = await new Promise((resolve) => terminal.once("error", resolve));
  expect(error).toMatchObject({ status: 401 });
  expect(terminal.state).toBe("closed");
  const upgrade = openTerminal(() => `${client.url}/v1/sandboxes/nobodys/terminal?ticket=none`);
  const refused = await new Promise((resolve) => upgrade.once("error", resolve));
  expect(refused).toMatchObject({ status: 401 });
  await expect(upgrade.exited()).rejects.toMatchObject({ status: 401 });
});

test("terminals are listed and closed", async () => {
  const sandbox = fresh();
  expect(await sandbox.listTerminals()).toEqual([]);
  const terminal = sandbox.terminal({ sessionId: "dev", name: "me", shell: "bash", args: ["--norc"] });
  terminal.write("printf '\\e]0;a title\\a'; echo li''sted\n");
  await terminal.waitFor("listed");
  const [info, ...others] = await sandbox.listTerminals();
  expect(others).toEqual([]);
  expect(info).toMatchObject({ session: "dev", cols: 80, rows: 24, terminal: terminal.attached?.terminal });
  expect(info?.offset).toBeGreaterThan(0);
  expect(info?.ageMs).toBeGreaterThanOrEqual(0);
  await sandbox.closeTerminal("dev");
  expect(await terminal.exited()).toMatchObject({ code: expect.any(Number) });
  expect(await sandbox.listTerminals()).toEqual([]);
  await sandbox.closeTerminal("dev");
});

test("a ticket opens one socket of one session, once", async () => {
  const sandbox = fresh();
  const { ticket, expiresAt } = await sandbox.createTicket({ session: "dev", ttl: 60 });
  expect(Date.parse(expiresAt)).toBeGreaterThan(Date.now());
  const address = `${client.url}/v1/sandboxes/${sandbox.id}/terminal?session=dev&ticket=${ticket}`;
  const first = openTerminal(() => address);
  first.write("echo by ti''cket\n");
  await first.waitFor("by ticket");
  const second = openTerminal(() => address);
  expect(await new Promise((resolve) => second.once("error", resolve))).toMatchObject({ status: 401 });
  first.close();
});

test("recordings can be read and deleted", async () => {
  const sandbox = fresh();
  const terminal = sandbox.terminal({ record: true });
  terminal.write("echo re''corded; exit\n");
  await terminal.exited();
  const ended = async (): Promise<boolean> => (await sandbox.recordings()).every((one) => one.endedAt !== null);
  await expect.poll(ended, { timeout: 10_000 }).toBe(true);
  const [recording, ...others] = await sandbox.recordings();
  expect(others).toEqual([]);
  const text = await new Response(await sandbox.readRecording(recording!.id)).text();
  const [head, ...events] = text.trim().split("\n").map((line) => JSON.parse(line));
  expect(head).toMatchObject({ version: 2, width: 80, height: 24 });
  const shown = events.filter(([, kind]) => kind === "o").map(([, , data]) => data);
  expect(shown.join("")).toContain("recorded");
  await sandbox.deleteRecording(recording!.id);
  expect(await sandbox.recordings()).toEqual([]);
});
