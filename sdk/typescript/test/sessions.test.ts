/** The documentation's samples about sessions, with their stated results. */

import { randomUUID } from "node:crypto";
import { afterAll, expect, test } from "vitest";
import { getSandbox, Isolet, IsoletError, type Sandbox, type SandboxOptions } from "../src/index.js";

const client = new Isolet();
const made: Sandbox[] = [];

function fresh(options: SandboxOptions = {}): Sandbox {
  const sandbox = getSandbox(client, `sessions-${randomUUID()}`, options);
  made.push(sandbox);
  return sandbox;
}

afterAll(async () => {
  await Promise.all(made.map((sandbox) => sandbox.destroy()));
});

// Promises: G4, G5.
test("commands of the default session share directory and variables", async () => {
  const sandbox = fresh();
  await sandbox.mkdir("/app");
  await sandbox.exec("cd /app");
  expect((await sandbox.exec("pwd")).stdout).toBe("/app\n");
  await sandbox.exec("export MY_VAR=hello");
  const result = await sandbox.exec("echo $MY_VAR");
  expect(result).toMatchObject({
    success: true,
    exitCode: 0,
    stdout: "hello\n",
    stderr: "",
    command: "echo $MY_VAR",
    sessionId: "default",
    timedOut: false,
  });
  expect(result.duration).toBeGreaterThan(0);
  expect(Date.parse(result.timestamp)).toBeGreaterThan(0);
});

// Promises: G7.
test("without a default session, commands run as separate processes", async () => {
  const sandbox = fresh({ enableDefaultSession: false });
  await sandbox.mkdir("/app");
  await sandbox.exec("cd /app");
  const result = await sandbox.exec("pwd");
  expect(result.stdout).toBe("/workspace\n");
  expect(result.sessionId).toBeUndefined();
});

// Promises: G8.
test("a session that is named is made with defaults", async () => {
  const sandbox = fresh();
  const result = await sandbox.exec("echo hello; pwd", { sessionId: "new-session" });
  expect(result).toMatchObject({ stdout: "hello\n/workspace\n", sessionId: "new-session" });
  const made = await client.json<object>(`/v1/sandboxes/${sandbox.id}/sessions/new-session`);
  expect(made).toMatchObject({ cwd: "/workspace", env_names: [] });
});

// Promises: G9.
test("a deleted session comes back with defaults", async () => {
  const sandbox = fresh();
  const session = await sandbox.createSession({ id: "temp", cwd: "/usr", env: { MY_VAR: "value" } });
  expect((await session.exec("echo $MY_VAR; pwd")).stdout).toBe("value\n/usr\n");
  await sandbox.deleteSession("temp");
  const result = await sandbox.exec("echo $MY_VAR", { sessionId: "temp" });
  expect(result).toMatchObject({ success: true, stdout: "\n" });
  expect((await sandbox.exec("pwd", { sessionId: "temp" })).stdout).toBe("/workspace\n");
});

// Promises: G10.
test("sessions have environments and directories of their own", async () => {
  const sandbox = fresh();
  for (const name of ["build", "test"]) await sandbox.mkdir(`/${name}`);
  const buildSession = await sandbox.createSession({
    id: "build",
    env: { NODE_ENV: "production" },
    cwd: "/build",
  });
  const testSession = await sandbox.createSession({
    id: "test",
    env: { NODE_ENV: "test" },
    cwd: "/test",
  });
  await sandbox.writeFile("/build/run", "echo build in $PWD for $NODE_ENV");
  await sandbox.writeFile("/test/run", "echo test in $PWD for $NODE_ENV");
  expect((await buildSession.exec("sh ./run")).stdout).toBe("build in /build for production\n");
  expect((await testSession.exec("sh ./run")).stdout).toBe("test in /test for test\n");
});

// Promises: G11.
test("a session's timeout holds for its commands, a command's own is stronger", async () => {
  const sandbox = fresh();
  const session = await sandbox.createSession({ id: "ci", commandTimeoutMs: 300 });
  expect(await session.exec("sleep 60")).toMatchObject({ success: false, timedOut: true });
  const own = await session.exec("sleep 0.5; echo done", { timeout: 20_000 });
  expect(own).toMatchObject({ stdout: "done\n", timedOut: false });
});

// Promises: G12.
test("sessions do not share exported variables or directories", async () => {
  const sandbox = fresh();
  const session1 = await sandbox.createSession({ env: { API_KEY: "key-1" } });
  const session2 = await sandbox.createSession({ env: { API_KEY: "key-2" } });
  await session1.exec("export MY_VAR=hello");
  expect((await session2.exec("echo $MY_VAR")).stdout).toBe("\n");
  await session1.exec("mkdir /workspace/project1 && cd /workspace/project1");
  expect((await session2.exec("pwd")).stdout).toBe("/workspace\n");
  expect((await session1.exec("echo $API_KEY")).stdout).toBe("key-1\n");
  expect((await session2.exec("echo $API_KEY")).stdout).toBe("key-2\n");
});

// Promises: G2, G3.
test("sessions share files and processes", async () => {
  const sandbox = fresh();
  const session1 = await sandbox.createSession({});
  const session2 = await sandbox.createSession({});
  await session1.writeFile("/workspace/file.txt", "data");
  expect((await session2.readFile("/workspace/file.txt")).content).toBe("data");
  const { stdout } = await session1.exec("sleep 1000 & echo $!");
  expect((await session2.exec(`cat /proc/${stdout.trim()}/comm`)).stdout).toBe("sleep\n");
  await session2.exec("rm -rf /workspace/*");
  expect(await session1.exists("/workspace/file.txt")).toEqual({ exists: false });
});

// Promises: V1.
test("a session sees what it was granted and nothing else", async () => {
  const sandbox = fresh();
  await sandbox.writeFile("/workspace/secret/key", "key");
  await sandbox.writeFile("/workspace/docs/a.txt", "a");
  const scoped = await sandbox.createSession({ fileAccess: { read: ["docs"], write: ["out"] } });
  expect((await scoped.exec("ls; cat docs/a.txt; echo o >out/o")).stdout).toBe("docs\nout\na");
  expect((await scoped.readFile("/workspace/out/o")).content).toBe("o\n");
  expect(await scoped.exists("/workspace/secret/key")).toEqual({ exists: false });
  await expect(scoped.readFile("/workspace/secret/key")).rejects.toThrow(/secret\/key/);
  await expect(scoped.writeFile("/workspace/docs/a.txt", "b")).rejects.toThrow();
  await expect(sandbox.createSession({ fileAccess: { read: ["gone"] } })).rejects.toThrow(/gone/);
});

// Promises: G13.
test("sessions work at the same time", async () => {
  const sandbox = fresh();
  const sides = ["left", "right"].map(async (own, at, all) => {
    const session = await sandbox.createSession({ id: own, env: { OWN: own, OTHER: all[1 - at]! } });
    // Each waits for the other: run in sequence, they would never end.
    const meet = "touch $OWN; until [ -e $OTHER ]; do sleep 0.01; done; echo $OWN met $OTHER";
    return (await session.exec(meet, { timeout: 15_000 })).stdout;
  });
  expect(await Promise.all(sides)).toEqual(["left met right\n", "right met left\n"]);
});

// Promises: G15, H2.
test("separate sandboxes share neither files, processes nor resources", async () => {
  const [one, two] = [fresh(), fresh()];
  await client.send("/v1/sandboxes", { json: { id: one.id, memory_mib: 128, persistent: false } });
  await one.exec("echo mine | tee /workspace/mine >/tmp/mine; sleep 4747 &");
  const seen = await two.exec("ls -A /workspace; ls /tmp/mine; pgrep -f 'sleep 474[7]'");
  expect(seen).toMatchObject({ exitCode: 1, stdout: "" });
  await two.exec("rm -rf /workspace/* /tmp/*");
  expect((await one.exec("cat /workspace/mine /tmp/mine")).stdout).toBe("mine\nmine\n");
  const hungry = "python3 -c 'print(len(bytearray(200 << 20)))'";
  expect((await one.exec(hungry)).success).toBe(false);
  expect((await two.exec(hungry)).stdout).toBe("209715200\n");
});

// Promises: G14.
test("one session's keys are not in another's environment", async () => {
  const sandbox = fresh();
  const devSession = await sandbox.createSession({ id: "dev", env: { ANTHROPIC_API_KEY: "secret" } });
  await devSession.exec("echo 'echo serves on $PORT $ANTHROPIC_API_KEY' >server.sh");
  const appSession = await sandbox.createSession({ id: "app", env: { PORT: "3000" } });
  expect((await appSession.exec("sh server.sh")).stdout).toBe("serves on 3000\n");
});

// Promises: G16, G17.
test("a temporary session is cleaned up and the default one cannot be deleted", async () => {
  const sandbox = fresh();
  try {
    const session = await sandbox.createSession({ id: "temp" });
    await session.exec("true");
  } finally {
    await sandbox.deleteSession("temp");
  }
  await expect(sandbox.deleteSession("temp")).rejects.toMatchObject({ status: 404 });
  await expect(sandbox.deleteSession("default")).rejects.toThrow(
    "Cannot delete default session. Use sandbox.destroy() instead.",
  );
});

// Promises: G18.
test("a session is found again by its id", async () => {
  const sandbox = fresh();
  await (await sandbox.createSession({ id: "mine", name: "for a person" })).exec("x=5");
  const again = await sandbox.getSession("mine");
  expect((await again.exec("echo $x")).stdout).toBe("5\n");
  await expect(sandbox.createSession({ id: "mine" })).rejects.toMatchObject({
    status: 409,
    code: "session_exists",
  });
});

test("variables are set for what runs and what starts, whatever they hold", async () => {
  const sandbox = fresh();
  await sandbox.exec("true");
  const value = "it's $HOME \"and\" `more`\n";
  await sandbox.setEnvVars({ ODD: value, GONE: undefined });
  expect((await sandbox.exec('printf %s "$ODD"')).stdout).toBe(value);
  expect((await sandbox.exec('printf %s "$ODD"', { sessionId: "later" })).stdout).toBe(value);
  const session = await sandbox.getSession("later");
  await session.setEnvVars({ ODD: undefined });
  expect((await session.exec("echo ${ODD-unset}")).stdout).toBe("unset\n");
  await expect(sandbox.setEnvVars({ "A=B; rm": "x" })).rejects.toThrow(IsoletError);
});

test("output arrives while the command runs", async () => {
  const sandbox = fresh();
  const received: [string, string][] = [];
  const result = await sandbox.exec("echo one; sleep 0.2; echo two >&2; exit 3", {
    stream: true,
    onOutput: (stream, data) => received.push([stream, data]),
    onComplete: ({ exitCode }) => received.push(["exit", String(exitCode)]),
  });
  expect(received).toEqual([["stdout", "one\n"], ["stderr", "two\n"], ["exit", "3"]]);
  expect(result).toMatchObject({ success: false, exitCode: 3, stdout: "one\n", stderr: "two\n" });
});

test("input, directory and environment hold for one command; aborting ends it", async () => {
  const sandbox = fresh();
  const result = await sandbox.exec("cat; pwd; echo $A", { stdin: "in\n", cwd: "/tmp", env: { A: "b" } });
  expect(result.stdout).toBe("in\n/tmp\nb\n");
  expect((await sandbox.exec("pwd; echo ${A-unset}")).stdout).toBe("/workspace\nunset\n");
  const cut = AbortSignal.timeout(300);
  await expect(sandbox.exec("sleep 1000", { signal: cut })).rejects.toThrow();
  expect((await sandbox.exec("echo on")).stdout).toBe("on\n");
});

test("a changed session starts programs with its environment", async () => {
  const sandbox = fresh();
  const session = await sandbox.createSession({ id: "changed", env: { A: "old", B: "b" } });
  expect(await session.exec("exit 3")).toMatchObject({ exitCode: 3, shellEnded: true });
  const info = await session.update({ env: { A: "new", B: undefined }, metadata: { m: 1 } });
  expect(info).toMatchObject({ envNames: ["A"], metadata: { m: 1 } });
  expect(await session.exec("echo $A$B")).toMatchObject({ stdout: "new\n", shellEnded: false });
});
