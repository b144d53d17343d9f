/** The documentation's samples about a sandbox's life, with their stated results. */

import { randomUUID } from "node:crypto";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { afterAll, expect, test } from "vitest";
import { getSandbox, Isolet, IsoletError, type Sandbox, type SandboxOptions } from "../src/index.js";

const client = new Isolet();
const made: Sandbox[] = [];

function fresh(options: SandboxOptions = {}): Sandbox {
  const sandbox = getSandbox(client, `life-${randomUUID()}`, options);
  made.push(sandbox);
  return sandbox;
}

async function state(sandbox: Sandbox): Promise<string> {
  return (await client.json<{ state: string }>(`/v1/sandboxes/${sandbox.id}`)).state;
}

async function asleep(sandbox: Sandbox): Promise<void> {
  await expect.poll(() => state(sandbox), { timeout: 15_000 }).toBe("sleeping");
}

afterAll(async () => {
  await Promise.all(made.map((sandbox) => sandbox.destroy()));
});

// Promises: H3.
test("a sandbox is made the first time it is named", async () => {
  const sandbox = fresh();
  await expect(state(sandbox)).rejects.toMatchObject({ status: 404 });
  expect((await sandbox.exec('echo "Hello"')).stdout).toBe("Hello\n");
  expect(await state(sandbox)).toBe("running");
});

// Promises: H1, H12.
test("names by user, session or build are ids, and one id is one sandbox", async () => {
  const [repoName, commit] = ["repo", "3f2c1ab"];
  const ids = [
    `user-${randomUUID()}`,
    `session-${Date.now()}-${Math.random()}`,
    `build-${repoName}-${commit}-${randomUUID()}`,
  ];
  for (const id of ids) {
    const sandbox = getSandbox(client, id);
    made.push(sandbox);
    await sandbox.writeFile("name", id);
    expect((await getSandbox(client, id).readFile("name")).content).toBe(id);
  }
});

// Promises: H15.
test("operations are combined in one command", async () => {
  const sandbox = fresh();
  const result = await sandbox.exec("echo install && echo test && false && echo build");
  expect(result).toMatchObject({ success: false, exitCode: 1, stdout: "install\ntest\n" });
});

/** Kill the agent of the sandbox that has a file `marker` in its workspace. */
function killAgent(marker: string): void {
  for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    try {
      const isAgent = readFileSync(`/proc/${pid}/cmdline`, "utf8").startsWith("isolet-agent");
      if (!isAgent || !existsSync(`/proc/${pid}/root/workspace/${marker}`)) continue;
    } catch {
      continue;
    }
    process.kill(Number(pid), "SIGKILL");
    return;
  }
  throw new Error(`no agent has ${marker}`);
}

// Promises: F7.
test("a failed sandbox is recovered with its files, and the answer says what is lost", async () => {
  const sandbox = fresh({ persistent: true });
  await sandbox.writeFile("marker", sandbox.id);
  await sandbox.writeFile(sandbox.id, "");
  killAgent(sandbox.id);
  await expect.poll(() => state(sandbox), { timeout: 15_000 }).toBe("failed");
  const recovered = await sandbox.recover();
  expect(recovered.info.state).toBe("sleeping");
  expect(recovered.lost).toEqual(expect.arrayContaining(["shells", "processes"]));
  expect((await sandbox.readFile("marker")).content).toBe(sandbox.id);
});

// Promises: L15, L17.
test("a paused sandbox keeps its processes and variables", async () => {
  const sandbox = fresh();
  await sandbox.exec("A=b; sleep 1000 & true");
  expect((await sandbox.pause()).state).toBe("paused");
  await expect(sandbox.exec("true")).rejects.toMatchObject({ status: 409, code: "sandbox_paused" });
  expect((await sandbox.resume()).state).toBe("running");
  expect((await sandbox.exec("echo $A; jobs -r | wc -l")).stdout).toBe("b\n1\n");
  await sandbox.pause();
  expect(await sandbox.update({ autoResume: true })).toMatchObject({ state: "paused", autoResume: true });
  expect((await sandbox.exec("echo $A")).stdout).toBe("b\n");
});

// Promises: H10.
test("a destroyed sandbox has lost everything, and the next call makes a clean one", async () => {
  const sandbox = fresh();
  await sandbox.writeFile("/workspace/data.json", "{}");
  await sandbox.exec("export A=b; sleep 1000 & echo x >/tmp/x");
  await sandbox.destroy();
  await sandbox.destroy();
  await expect(state(sandbox)).rejects.toMatchObject({ status: 404 });
  expect(await sandbox.listFiles("/workspace")).toEqual([]);
  const left = await sandbox.exec("echo ${A-unset}; ls /tmp/x; pgrep -x sleep");
  expect(left).toMatchObject({ exitCode: 1, stdout: "unset\n" });
});

// Promises: H4.
test("state stays while it is active", async () => {
  const sandbox = fresh();
  for (const folder of ["/workspace", "/tmp", "/home"]) {
    await sandbox.exec(`echo data >${folder}/file`);
  }
  await sandbox.exec("cd /tmp; export A=b; sleep 1000 &");
  const { stdout } = await sandbox.exec("cat /workspace/file /tmp/file /home/file; pwd; echo $A; jobs");
  expect(stdout).toMatch(/^data\ndata\ndata\n\/tmp\nb\n\[1\].*sleep 1000 &\n$/);
});

// Promises: G6, H6, H7.
test("an ephemeral sandbox has lost everything when it wakes", async () => {
  const sandbox = fresh({ sleepAfter: 1 });
  await sandbox.writeFile("/workspace/data.json", "{}");
  await sandbox.exec("export A=b; sleep 1000 & echo x >/tmp/x >/home/x");
  await asleep(sandbox);
  // Once is enough, also on a machine that takes more than a second for a step.
  await sandbox.update({ sleepAfter: 0 });
  const files = await sandbox.listFiles("/workspace");
  if (!files.includes("data.json")) {
    await sandbox.writeFile("/workspace/data.json", '{"made":"again"}');
  }
  expect((await sandbox.exec("echo ${A-unset}; cat data.json")).stdout).toBe('unset\n{"made":"again"}');
  const left = await sandbox.exec("ls /tmp/x /home/x; pgrep -x sleep");
  expect(left).toMatchObject({ exitCode: 1, stdout: "" });
});

// Promises: H8.
test("a persistent sandbox restores files and shell state when it wakes, and reports what it lost", async () => {
  const sandbox = fresh({ sleepAfter: 1, persistent: true });
  await sandbox.writeFile("data", "yes");
  await sandbox.exec("cd /tmp; export A=b; list=(x 'y z'); f() { echo of $A; }; sleep 1000 &");
  await asleep(sandbox);
  // Once is enough, also on a machine that takes more than a second for a step.
  await sandbox.update({ sleepAfter: 0 });
  const result = await sandbox.exec('cat /workspace/data; pwd; echo $A "${list[1]}"; f');
  expect(result.stdout).toBe("yes/tmp\nb y z\nof b\n");
  expect(result.lost).toEqual(["processes"]);
  expect((await sandbox.exec("true")).lost).toBeUndefined();
});

// Promises: H9.
test("a sandbox that is kept alive does not sleep", async () => {
  const sandbox = fresh({ sleepAfter: "1s", keepAlive: true });
  await sandbox.exec("A=b");
  await new Promise((wake) => setTimeout(wake, 2500));
  expect((await sandbox.exec("echo $A")).stdout).toBe("b\n");
  await sandbox.setKeepAlive(false);
  await asleep(sandbox);
});

// Promises: H13.
test("a temporary sandbox is destroyed when its work has failed", async () => {
  const sandbox = fresh();
  try {
    const result = await sandbox.exec("npm-is-not-here run build");
    expect(result).toMatchObject({ success: false, exitCode: 127 });
  } finally {
    await sandbox.destroy();
  }
  await expect(state(sandbox)).rejects.toMatchObject({ status: 404 });
});

test("files are written, listed, moved and removed", async () => {
  const sandbox = fresh();
  const name = "odd name #1?%ü.txt";
  await sandbox.writeFile(`folder/${name}`, "text");
  await sandbox.writeFile("folder/.hidden", new Uint8Array([0, 255]));
  const files = await sandbox.listFiles("/workspace", { recursive: true, includeHidden: true });
  expect(files.map(({ name, type, size }) => [name, type, size])).toEqual([
    ["folder", "directory", expect.any(Number)],
    [".hidden", "file", 2],
    [name, "file", 4],
  ]);
  await sandbox.renameFile(`folder/${name}`, "other/text");
  expect((await sandbox.readFile("other/text")).content).toBe("text");
  const stream = await sandbox.readFileStream("folder/.hidden");
  expect(new Uint8Array(await new Response(stream).arrayBuffer())).toEqual(new Uint8Array([0, 255]));
  await expect(sandbox.deleteFile("folder")).rejects.toMatchObject({ status: 409 });
  await sandbox.deleteFile("folder", { recursive: true });
  expect(await sandbox.exists("folder")).toEqual({ exists: false });
  await expect(sandbox.readFile("folder/x")).rejects.toThrow(IsoletError);
});

test("invalid requests fail before they are sent, or with the server's message", async () => {
  expect(() => new Isolet({ apiKey: "" })).toThrow("no API key");
  const wrong = new Isolet({ apiKey: "no-such-key" });
  await expect(getSandbox(wrong, "a").exec("true")).rejects.toMatchObject({ status: 401 });
  const nowhere = new Isolet({ url: "http://127.0.0.1:9", apiKey: "k" });
  await expect(getSandbox(nowhere, "a").exec("true")).rejects.toMatchObject({ code: "unreachable" });
  await expect(fresh({ sleepAfter: "soon" }).exec("true")).rejects.toThrow('"soon"');
  await expect(getSandbox(client, "../x").exec("true")).rejects.toMatchObject({ status: 400 });
});

test("network rules are read, and changed atomically", async () => {
  const sandbox = fresh({ network: "none" });
  expect((await sandbox.exec("true")).denied).toBeUndefined();
  expect(await sandbox.getNetwork()).toEqual({ mode: "none", allow: [], deny: [] });
  expect(await sandbox.changeNetwork({ networkProfile: "none" })).toMatchObject({ profile: "none" });
  expect(await sandbox.info()).toMatchObject({ network: "none", networkProfile: "none" });
  const closed = { host: "10.0.0.1", port: 80, protocol: "tcp", rule: "private", times: 1 };
  for (const [change, why] of [
    [{ allowAdd: ["http://example.com"] }, "allow_add"],
    [{ allowAdd: [closed] }, "closed to every sandbox"],
    [{ network: { allow: ["*"], deny: ["*"] } }, "network"],
  ] as const) {
    await expect(sandbox.changeNetwork(change as object)).rejects.toThrow(why);
  }
  await expect(fresh({ networkProfile: "never-was" }).exec("true")).rejects.toMatchObject({ status: 400 });
});

test("credentials are injected and removed, and their values stay hidden", async () => {
  const host = "api.example";
  const sandbox = fresh({ network: "none", credentials: [{ host, header: "Authorization", value: "hunter2" }] });
  const injected = { host, header: "authorization", allowed: false };
  await sandbox.exec("true");
  expect((await sandbox.getNetwork()).credentials).toEqual([injected]);
  const change = {
    credentialsAdd: [{ host: "*.example", placeholder: "A_KEY", value: "hunter2" }],
    credentialsRemove: [injected],
  };
  const word = { host: "*.example", placeholder: "A_KEY", allowed: false };
  expect((await sandbox.changeNetwork(change)).credentials).toEqual([word]);
  expect((await sandbox.changeNetwork({ credentialsRemove: [word] })).credentials).toBeUndefined();
  const wrong = sandbox.changeNetwork({ credentialsAdd: [{ host: "hunter2 x", header: "a", value: "hunter2" }] });
  await expect(wrong).rejects.toThrow("credentials_add[0].host");
  await expect(wrong).rejects.not.toThrow("hunter2");
});

// Promises: TP1, TP6.
test("an image from a snapshot has its files and warns of secrets", async () => {
  const sandbox = fresh({ persistent: true });
  await sandbox.exec("echo made >/opt/made; echo token >/root/.netrc; echo work >/workspace/work; kept=5");
  const snapshot = await sandbox.snapshot();
  const name = `local/image-${randomUUID()}:1`;
  const image = await client.commitImage(snapshot.id, name, { shells: true });
  expect(image).toMatchObject({ snapshotId: snapshot.id, source: "snapshot", onHost: true, shells: true });
  expect(image.warnings).toEqual([{ path: "/root/.netrc", kind: "credentials" }]);
  const full = `docker.io/${name}`;
  expect((await client.listImages()).flatMap(({ names }) => names)).toContain(full);
  const copy = fresh({ image: name });
  expect((await copy.exec("cat /opt/made /workspace/work; echo $kept")).stdout).toBe("made\nwork\n5\n");
  await copy.destroy();
  await client.deleteSnapshot(snapshot.id);
  const second = `local/image-${randomUUID()}:2`;
  expect((await client.tagImage(name, second)).names.sort()).toEqual([full, `docker.io/${second}`].sort());
  await client.deleteImage(name);
  expect((await client.listImages()).find(({ digest }) => digest === image.digest)?.names).toEqual([`docker.io/${second}`]);
  await client.deleteImage(second);
  await expect(client.deleteImage(name)).rejects.toMatchObject({ status: 404, code: "no_image" });
});

// Promises: SN1, SN4.
test("a snapshot and a fork have the files and the shells of one moment", async () => {
  const sandbox = fresh({ persistent: true });
  await sandbox.exec("x=5; cd /tmp; echo before >/workspace/state");
  const name = `snapshot-${randomUUID()}`;
  const snapshot = await sandbox.snapshot({ name, metadata: { for: "tests" } });
  expect(snapshot).toMatchObject({ name, sandboxId: sandbox.id, metadata: { for: "tests" }, lost: [] });
  await sandbox.exec("echo after >/workspace/state");
  expect((await client.listSnapshots(sandbox.id)).map(({ id }) => id)).toEqual([snapshot.id]);
  const copy = fresh({ snapshot: name });
  expect((await copy.exec("echo $x; pwd; cat /workspace/state")).stdout).toBe("5\n/tmp\nbefore\n");
  const forks = await sandbox.fork(2);
  made.push(...forks);
  for (const fork of forks) {
    expect((await fork.exec("echo $x; cat /workspace/state")).stdout).toBe("5\nafter\n");
  }
  const restored = await sandbox.restore(name);
  expect(restored).toMatchObject({ info: { id: sandbox.id, state: "running" }, lost: ["shells"] });
  expect((await sandbox.exec("echo $x; pwd; cat /workspace/state")).stdout).toBe("5\n/tmp\nbefore\n");
  await client.deleteSnapshot(name);
  await expect(client.deleteSnapshot(name)).rejects.toMatchObject({ status: 404, code: "no_snapshot" });
});

// Promises: SN10, SN11.
test("files of a snapshot are listed, read and compared without a sandbox", async () => {
  const sandbox = fresh();
  await sandbox.exec("mkdir -p deep/er; printf 'a\\000b\\377' >deep/bytes; echo x >.hidden; ln -s deep/bytes link; mkfifo /opt/pipe");
  await sandbox.exec("echo kept >kept; echo old >'odd #1 %ü?'; echo gone >deep/gone");
  const name = `files-${randomUUID()}`;
  const before = await sandbox.snapshot({ name });
  await sandbox.exec("rm deep/gone; echo new >'odd #1 %ü?'; mkdir more; touch more/{1..1200}; chmod 600 kept");
  const after = await sandbox.snapshot();
  await sandbox.destroy();

  const list = async (path?: string, options = {}) => {
    const all = [];
    for await (const file of client.listSnapshotFiles(name, path, options)) all.push(file);
    return all;
  };
  expect((await list()).map(({ name }) => name)).toEqual(["deep", "kept", "link", "odd #1 %ü?"]);
  expect((await list("deep", { hidden: true })).map(({ path, type, size }) => [path, type, size])).toEqual([
    ["/workspace/deep/bytes", "file", 4],
    ["/workspace/deep/er", "directory", expect.any(Number)],
    ["/workspace/deep/gone", "file", 5],
  ]);
  const all = await list("/workspace", { recursive: true, hidden: true });
  expect(all.map(({ path }) => path.slice("/workspace/".length))).toEqual([
    ".hidden", "deep", "deep/bytes", "deep/er", "deep/gone", "kept", "link", "odd #1 %ü?",
  ]);
  expect(all.find(({ name }) => name === "link")).toMatchObject({ type: "symlink", target: "deep/bytes" });
  // Over several pages.
  let count = 0;
  for await (const file of client.listSnapshotFiles(after.id, "more")) count += Number(file.type === "file");
  expect(count).toBe(1200);

  const text = async (path: string) => new TextDecoder().decode(await client.readSnapshotFile(name, path));
  expect(await client.readSnapshotFile(before.id, "link")).toEqual(new Uint8Array([97, 0, 98, 255]));
  expect(await text("odd #1 %ü?")).toBe("old\n");
  expect(await text("/etc/passwd")).toMatch(/^root:/);
  await expect(text("deep/none")).rejects.toMatchObject({ status: 404, code: "not_found" });
  await expect(text("/opt/pipe")).rejects.toMatchObject({ status: 409, code: "wrong_kind" });
  await expect(client.readSnapshotFile("none", "kept")).rejects.toMatchObject({ status: 404, code: "no_snapshot" });

  const changes = [];
  for await (const { change, file } of client.diffSnapshots(name, after.id)) {
    changes.push([change, file.path.slice("/workspace/".length), file.type]);
  }
  expect(changes.length).toBe(1204);
  expect(changes.filter(([, path]) => !path?.startsWith("more/"))).toEqual([
    ["removed", "deep/gone", "file"],
    ["changed", "kept", "file"],
    ["added", "more", "directory"],
    ["changed", "odd #1 %ü?", "file"],
  ]);
  await expect(client.diffSnapshots(name, "none").next()).rejects.toMatchObject({ code: "no_snapshot" });
  await client.deleteSnapshot(name);
  await client.deleteSnapshot(after.id);
  await expect(client.listSnapshotFiles(name).next()).rejects.toMatchObject({ status: 404, code: "no_snapshot" });
});

test("a forced sleep ends commands, and a wake counts as a boot", async () => {
  const sandbox = fresh();
  const events = sandbox.execStream("echo begun; sleep 1000");
  expect((await events.next()).value).toMatchObject({ type: "stdout", data: "begun\n" });
  await expect(sandbox.sleep()).rejects.toMatchObject({ code: "sandbox_in_use" });
  expect(await sandbox.sleep({ force: true })).toMatchObject({ state: "sleeping", boots: 1 });
  await expect(events.next()).rejects.toMatchObject({ code: "sandbox_slept" });
  await sandbox.exec("true");
  expect((await sandbox.info()).boots).toBe(2);
});
