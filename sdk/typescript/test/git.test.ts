/** Cloning repositories: options, injection and credentials. */

import { randomUUID } from "node:crypto";
import { afterAll, beforeAll, expect, test } from "vitest";
import { getSandbox, Isolet, type Sandbox } from "../src/index.js";

const sandbox: Sandbox = getSandbox(new Isolet(), `git-${randomUUID()}`);

/** Serves files to clients with the right password, and records git's command line. */
const HOST = `
import base64, http.server, subprocess
RIGHT = "Basic " + base64.b64encode(b"me@home:s3cret/:x").decode()
class Files(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        open("/tmp/seen", "a").write(subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True).stdout)
        if self.headers.get("authorization") != RIGHT:
            self.send_response(401)
            self.send_header("www-authenticate", 'Basic realm="x"')
            self.end_headers()
            return
        super().do_GET()
http.server.ThreadingHTTPServer(("127.0.0.1", 8000), lambda *a: Files(*a, directory="/tmp/host")).serve_forever()
`;

beforeAll(async () => {
  const made = await sandbox.exec(`
    export GIT_CONFIG_GLOBAL=/dev/null GIT_{AUTHOR,COMMITTER}_{NAME,EMAIL}=x
    git init -q -b main /tmp/origin && cd /tmp/origin
    for i in 1 2 3; do echo $i >file; git add file; git commit -q -m $i; done
    git tag v1; git checkout -q -b other; echo other >file; git commit -q -am other; git checkout -q main
    git clone -q --bare /tmp/origin /tmp/host/project.git && git -C /tmp/host/project.git update-server-info
    cd /workspace`);
  expect(made).toMatchObject({ exitCode: 0 });
  await sandbox.writeFile("/tmp/host.py", HOST);
  const host = await sandbox.startProcess(["python3", "/tmp/host.py"]);
  await host.waitForPort(8000);
});

afterAll(() => sandbox.destroy());

// Promises: Y11.
test("a repository is cloned under its name, by branch, by tag and in part", async () => {
  const full = await sandbox.gitCheckout("file:///tmp/host/project.git");
  expect(full).toMatchObject({ success: true, branch: "main", targetDir: "/workspace/project" });
  expect(full.commit).toMatch(/^[0-9a-f]{40}$/);
  expect((await sandbox.readFile("project/file")).content).toBe("3\n");

  const options = { branch: "other", targetDir: "deep/a b; touch x", depth: 1 };
  const part = await sandbox.gitCheckout("file:///tmp/host/project.git", options);
  expect(part).toMatchObject({ branch: "other", targetDir: "/workspace/deep/a b; touch x" });
  const log = await sandbox.exec("git -C 'deep/a b; touch x' log --oneline | wc -l; ls");
  expect(log.stdout).toBe("1\ndeep\nproject\n");

  const tag = await sandbox.gitCheckout("/tmp/origin", { branch: "v1", targetDir: "tagged" });
  expect([tag.branch, tag.commit]).toEqual([undefined, full.commit]);
});

// Promises: Y11.
test("what is asked for is neither an option of git nor a shell's text", async () => {
  for (const [url, options] of [
    ["--upload-pack=touch /tmp/bad", { targetDir: "t1" }],
    ["ext::sh -c touch% /tmp/bad", { targetDir: "t2" }],
    ["file:///tmp/none.git; touch /tmp/bad", {}],
    ["file:///tmp/host/project.git", { branch: "--config=core.sshCommand=touch /tmp/bad", targetDir: "t3" }],
    ["file:///tmp/host/project.git", { branch: "$(touch /tmp/bad)", targetDir: "t4" }],
  ] as const) {
    await expect(sandbox.gitCheckout(url, options)).rejects.toMatchObject({ code: "git_failed" });
  }
  const odd = await sandbox.gitCheckout("/tmp/origin", { targetDir: "--template=$(touch bad)" });
  expect(odd.targetDir).toBe("/workspace/--template=$(touch bad)");
  expect((await sandbox.exec("ls /tmp/bad; ls | grep bad")).stdout).toBe("--template=$(touch bad)\n");
  await expect(sandbox.gitCheckout("/tmp/origin", { depth: 0 })).rejects.toMatchObject({ code: "bad_depth" });
  await expect(sandbox.gitCheckout("/")).rejects.toMatchObject({ code: "bad_url" });
});

// Promises: Y11.
test("credentials open a repository, and are not in arguments, output, answers or the clone", async () => {
  const open = "http://me%40home:s3cret%2F%3Ax@127.0.0.1:8000/project.git";
  const made = await sandbox.gitCheckout(open, { targetDir: "private" });
  expect(made).toMatchObject({ repoUrl: "http://127.0.0.1:8000/project.git", branch: "main" });
  expect((await sandbox.readFile("private/file")).content).toBe("3\n");
  const seen = await sandbox.exec("grep -c 'git clone' /tmp/seen; grep -r s3cret /tmp/seen private; env");
  expect(Number.parseInt(seen.stdout)).toBeGreaterThan(0);
  expect(seen.stdout).not.toContain("s3cret");

  const wrong = "http://me:wr0ng@127.0.0.1:8000/project.git";
  const error = await sandbox.gitCheckout(wrong, { targetDir: "no" }).catch((error: Error) => error);
  expect(error).toMatchObject({ code: "git_failed" });
  expect(String(error)).not.toContain("wr0ng");
  // git does not prompt, and nothing blocks.
  const none = sandbox.gitCheckout("http://127.0.0.1:8000/project.git", { targetDir: "no" });
  await expect(none).rejects.toMatchObject({ code: "git_failed" });
});

// Promises: Y11.
test("a session clones where it begins, and into what it may write", async () => {
  await sandbox.mkdir("/tmp/begin");
  const session = await sandbox.createSession({ cwd: "/tmp/begin" });
  expect((await session.gitCheckout("/tmp/origin")).targetDir).toBe("/tmp/begin/origin");
  const scoped = await sandbox.createSession({ fileAccess: { read: ["project"], write: ["out"] } });
  const made = await scoped.gitCheckout("/workspace/project", { targetDir: "out/copy" });
  expect(made.targetDir).toBe("/workspace/out/copy");
  await expect(scoped.gitCheckout("/workspace/project", { targetDir: "copy" })).rejects.toMatchObject({
    code: "git_failed",
  });
});

// Promises: Y12.
test("what the server cannot do is refused with a reason", async () => {
  const session = await sandbox.getSession("default");
  const reasons = [
    sandbox.createBackup({ dir: "/workspace" }),
    session.restoreBackup({ id: "x", dir: "/workspace" }),
    sandbox.mountBucket("bucket", "/data", {}),
    session.unmountBucket("/data"),
  ];
  for (const refused of reasons) {
    await expect(refused).rejects.toMatchObject({ status: 501, code: "not_supported", message: /: .* no / });
  }
});
