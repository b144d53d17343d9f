/** The statements of the shell documentation, with a real server. */

import { randomUUID } from "node:crypto";
import { afterAll, expect, test } from "vitest";
import { getSandbox, Isolet, type Sandbox, type ShellClosed } from "../src/node.js";
import { network } from "./network.js";

const client = new Isolet();
const made: Sandbox[] = [];

function fresh(through = client): Sandbox {
  const sandbox = getSandbox(through, `shells-${randomUUID()}`);
  made.push(sandbox);
  return sandbox;
}

afterAll(async () => {
  await Promise.all(made.map((sandbox) => sandbox.destroy()));
});

// Promises: N11.
test("the document's own program: directory and environment persist", async () => {
  const shell = await fresh().shell();
  try {
    await shell.run("cd /tmp"); // cwd persists
    await shell.run("export FOO=bar"); // env persists
    const result = await shell.run("echo $FOO; pwd");
    expect(result).toMatchObject({ exitCode: 0, success: true, stdout: "bar\n/tmp\n", stderr: "" });
  } finally {
    shell.close();
  }
});

// Promises: N11.
test("variables, functions, aliases, jobs and history persist", async () => {
  const shell = fresh().shell();
  await shell.run("X=42; greet() { echo hello $1; }; alias hi='greet alias'; sleep 1000 &");
  expect((await shell.run("echo $X; greet you; hi; jobs -r | grep -c sleep")).stdout).toBe(
    "42\nhello you\nhello alias\n1\n",
  );
  expect((await shell.run("history")).stdout).toContain("greet you");
  shell.close();
});

// Promises: N11.
test("a hundred commands are one connection and one bash", async () => {
  const cable = await network(client.url);
  const sandbox = fresh();
  await sandbox.exec("true");
  const shell = getSandbox(new Isolet({ url: cable.url }), sandbox.id).shell();
  const pids = new Set<string>();
  await shell.run("true");
  const before = cable.connections();
  for (let turn = 0; turn < 100; turn++) pids.add((await shell.run("echo $$")).stdout);
  expect([pids.size, cable.connections()]).toEqual([1, before]);
  shell.close();
  cable.close();
});

// Promises: N11.
test("exit codes are returned, and both streams arrive separately while the command runs", async () => {
  const sandbox = fresh();
  const shell = sandbox.shell();
  const received: [string, string][] = [];
  const command = "echo one; until [ -e go ]; do sleep 0.01; done; echo two >&2; (exit 3)";
  const running = shell.run(command, { onOutput: (stream, data) => received.push([stream, data]) });
  await expect.poll(() => received, { timeout: 15_000 }).toEqual([["stdout", "one\n"]]);
  await sandbox.writeFile("go", "");
  expect(await running).toMatchObject({ exitCode: 3, success: false, stdout: "one\n", stderr: "two\n" });
  expect(received).toEqual([["stdout", "one\n"], ["stderr", "two\n"]]);
  expect((await shell.run("printf '\\xc3'; sleep 0.05; printf '\\xa9'")).stdout).toBe("é");
  shell.close();
});

// Promises: N11.
test("a command that exits the shell ends it, and the client learns of it at once", async () => {
  const sandbox = fresh();
  for (const [command, exitCode] of [["exit 5", 5], ["exec sh -c 'exit 6'", 6], ["kill -9 $$", 137]] as const) {
    const shell = sandbox.shell();
    const closed = new Promise<ShellClosed>((resolve) => shell.once("closed", resolve));
    expect((await shell.run(command)).exitCode).toBe(exitCode);
    expect((await closed).cause).not.toBe("");
    await expect(shell.run("true")).rejects.toMatchObject({ code: "shell_closed" });
    expect(shell.state).toBe("closed");
  }
  // Also while no command is running.
  const shell = sandbox.shell();
  const pid = (await shell.run("echo $$")).stdout.trim();
  const closed = new Promise<ShellClosed>((resolve) => shell.once("closed", resolve));
  await sandbox.exec(`kill -9 ${pid}`);
  expect(await closed).toMatchObject({ signal: 9 });
});

// Promises: N11.
test("shells of a sandbox are many, each a bash of its own, up to its close", async () => {
  const sandbox = fresh();
  const shells = Array.from({ length: 8 }, () => sandbox.shell());
  await Promise.all(shells.map((shell, at) => shell.run(`x=${at}; sleep 1000 &`)));
  const seen = await Promise.all(shells.map(async (shell) => (await shell.run("echo $x $$")).stdout.split(" ")));
  expect(seen.map(([x]) => x)).toEqual(["0", "1", "2", "3", "4", "5", "6", "7"]);
  const pids = seen.map(([, pid]) => pid!.trim());
  expect(new Set(pids).size).toBe(8);
  const count = async (): Promise<string> => (await sandbox.exec(`ls -d /proc/{${pids}} 2>/dev/null | wc -l`)).stdout;
  expect(await count()).toBe("8\n");
  for (const shell of shells) shell.close();
  await expect.poll(count, { timeout: 15_000 }).toBe("0\n");
});

// Promises: N11.
test("the end of the sandbox ends its shells", async () => {
  const sandbox = fresh();
  const shell = sandbox.shell();
  await shell.run("true");
  const endless = expect(shell.run("sleep 1000")).rejects.toMatchObject({ code: "shell_closed" });
  await sandbox.destroy();
  await endless;
});

test("a session's shell outlives its connection, and shares its state with commands", async () => {
  const session = await fresh().createSession({ id: "dev", cwd: "/tmp" });
  const shell = session.shell();
  expect(await shell.run("x=5; pwd")).toMatchObject({ stdout: "/tmp\n", sessionId: "dev" });
  shell.close();
  expect((await session.exec("echo $x")).stdout).toBe("5\n");
  const again = session.shell();
  expect((await again.run("exit 7")).exitCode).toBe(7);
  expect(await again.run("echo ${x-unset}")).toMatchObject({ stdout: "unset\n", fresh: true });
  again.close();
});

test("a command is written to, signalled and cancelled, and the shell stays", async () => {
  const shell = fresh().shell();
  const lines: string[] = [];
  const reader = shell.start('while read -r line; do echo "got $line"; done', {
    stdin: true,
    onOutput: (_, data) => lines.push(data),
  });
  reader.write("one\n");
  await expect.poll(() => lines.join("")).toBe("got one\n");
  reader.write(new TextEncoder().encode("two\n"));
  reader.closeInput();
  expect((await reader.result()).stdout).toBe("got one\ngot two\n");
  const large = "0123456789abcdef".repeat(100_000);
  expect((await shell.run("tee copy | wc -c", { stdin: large })).stdout.trim()).toBe("1600000");
  expect((await shell.run("cat; pwd; echo $A", { stdin: "in\n", cwd: "/usr", env: { A: "b" } })).stdout).toBe(
    "in\n/usr\nb\n",
  );
  const begun: string[] = [];
  const onOutput = (_: string, data: string): void => void begun.push(data);
  const trapped = shell.start("sh -c 'echo begun; exec sleep 1000'", { onOutput });
  await expect.poll(() => begun.join("")).toBe("begun\n");
  trapped.signal("TERM");
  expect(await trapped.result()).toMatchObject({ exitCode: 143 });
  expect(await shell.run("sleep 1000", { timeout: 200 })).toMatchObject({ timedOut: true });
  const abort = new AbortController();
  const endless = shell.run("echo begun; sleep 1000", { signal: abort.signal, onOutput });
  await expect.poll(() => begun.join("")).toBe("begun\nbegun\n");
  abort.abort();
  expect(await endless).toMatchObject({ cancelled: true });
  expect((await shell.run("pwd")).stdout).toBe("/workspace\n");
  shell.close();
});

test("output of background jobs is separate from that of commands", async () => {
  const sandbox = fresh();
  const shell = sandbox.shell();
  const received: string[] = [];
  shell.on("background", (stream, data) => received.push(`${stream} ${data}`));
  expect((await shell.run("(until [ -e go ]; do sleep 0.01; done; echo later) & echo now")).stdout).toBe("now\n");
  await sandbox.writeFile("go", "");
  await expect.poll(() => received, { timeout: 15_000 }).toEqual(["stdout later\n"]);
  shell.close();
});

// Promises: N12.
test("no byte is lost or doubled, and no command runs twice, over broken connections", async () => {
  const cable = await network(client.url);
  const sandbox = fresh();
  await sandbox.exec("true");
  const shell = getSandbox(new Isolet({ url: cable.url }), sandbox.id).shell({ reconnect: { initialDelayMs: 5, maxDelayMs: 50 } });
  const states: string[] = [];
  shell.on("state", (state) => states.push(state));
  let received = "";
  // It waits three times for a client that is slow, so that there are as many cuts at least.
  const waits = [150, 300, 450];
  const wait = "case $i in 150|300|450) until [ -e line-$i ]; do sleep 0.01; done; esac";
  const lines = shell.run(`n=0; for i in $(seq 1 600); do echo line $i; sleep 0.002; ${wait}; done`, {
    onOutput: (_, data) => {
      const before = received.length;
      received += data;
      if (Math.floor(before / 1400) !== Math.floor(received.length / 1400)) cable.cut();
      if (waits.length > 0 && received.includes(`line ${waits[0]}\n`)) {
        cable.cut();
        void sandbox.writeFile(`line-${waits.shift()}`, "");
      }
    },
  });
  expect((await lines).stdout).toBe(Array.from({ length: 600 }, (_, at) => `line ${at + 1}\n`).join(""));
  expect(states.filter((state) => state === "reconnecting").length).toBeGreaterThanOrEqual(3);
  // Cut while commands are being sent, or after they arrived without output.
  for (let turn = 1; turn <= 9; turn++) {
    const counted = shell.run(`n=$((n + 1)); touch seen-$n; until [ -e go-${turn} ]; do sleep 0.01; done; echo $n`);
    if (turn % 3 === 1) {
      await expect.poll(() => sandbox.exists(`seen-${turn}`), { timeout: 15_000 }).toEqual({ exists: true });
    }
    if (turn % 3 !== 0) cable.cut();
    await sandbox.writeFile(`go-${turn}`, "");
    expect((await counted).stdout).toBe(`${turn}\n`);
  }
  shell.close();
  cable.close();
});

test("a shell that cannot be opened reports why", async () => {
  const shell = getSandbox(new Isolet({ url: client.url, apiKey: "isolet_wrong" }), "nobodys").shell();
  await expect(shell.run("true")).rejects.toMatchObject({ status: 401 });
  expect(shell.state).toBe("closed");
  await expect(shell.run("true")).rejects.toMatchObject({ status: 401 });
  expect(() => shell.start("a\0b")).toThrow(expect.objectContaining({ code: "bad_command" }));
});
