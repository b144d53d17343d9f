/** Shells in a page, by ticket and by key: lost connections, file watches and port connections. */

import { expect, test } from "../kit/test.js";

// Promises: N12.
test("a page's shell comes back at its byte after cuts, and runs nothing twice", async ({ lab }) => {
  const proxy = await lab.proxy();
  const at = { port: proxy.port, sandbox: lab.sandbox };
  await lab.in(async ({ kit, args }) => {
    const reconnect = { initialDelayMs: 5, maxDelayMs: 50, maxAttempts: 1000 };
    kit.states = [];
    kit.sh = kit.shell(args, { reconnect });
    kit.sh.on("state", (state: string) => kit.states.push(state));
    kit.before = await kit.sh.run("x=5; cd /tmp; echo $$");
    const counts = "i=0; until [ -e enough ]; do echo $((++i)); ((i % 200)) || sleep 0.02; done; echo ran >>runs";
    kit.running = kit.sh.run(counts);
  }, at);
  for (let cuts = 0; cuts < 5; cuts++) {
    const { made } = proxy;
    proxy.cutAfter(4000 * cuts + 1);
    await expect.poll(() => proxy.made, { timeout: 40_000, intervals: [5] }).toBeGreaterThan(made);
  }
  proxy.cutAfter(Infinity);
  await lab.exec("touch /tmp/enough");
  const { ran, before, after, states } = await lab.in(async ({ kit }) => {
    const ran = await kit.running;
    const after = await kit.sh.run("echo $$ $x $PWD; cat runs");
    return { ran, before: kit.before, after, states: kit.states };
  });
  expect(ran.exitCode).toBe(0);
  const length = Number(ran.stdout.trimEnd().split("\n").at(-1));
  expect(length).toBeGreaterThan(1000);
  expect(ran.stdout).toBe(Array.from({ length }, (_, i) => `${i + 1}\n`).join(""));
  expect(after.stdout).toBe(`${before.stdout.trim()} 5 /tmp\nran\n`);
  expect(states).toContain("reconnecting");
  // Closing ends a private shell at once.
  await lab.in(({ kit }) => kit.sh.close());
  const there = `[ -e /proc/${before.stdout.trim()} ] && echo there || echo gone`;
  await expect.poll(() => lab.exec(there), { timeout: 15_000 }).toBe("gone\n");
});

test("a page with a key has a shell, watches files and speaks to a port", async ({ lab }) => {
  await lab.loadAtServer();
  const echo =
    "import socketserver\nclass Echo(socketserver.StreamRequestHandler):\n" +
    "    def handle(self): self.wfile.write(self.rfile.read()[::-1])\n" +
    "socketserver.TCPServer(('127.0.0.1', 9100), Echo).serve_forever()";
  const result = await lab.in(
    async ({ kit, args }) => {
      const sandbox = kit.sandbox(args);
      const shell = sandbox.shell({ sessionId: "dev" });
      const { stdout } = await shell.run("cd /tmp; pwd");
      shell.close();
      const watch = await sandbox.watch();
      await sandbox.writeFile("a", "a");
      let path;
      for await (const event of watch) {
        path = event.path;
        break;
      }
      await (await sandbox.startProcess(["python3", "-c", args.echo])).waitForPort(9100);
      const { readable, writable } = await sandbox.connectPort(9100);
      const writer = writable.getWriter();
      await writer.write(new TextEncoder().encode("abc"));
      await writer.close();
      return { stdout, path, received: await new Response(readable).text() };
    },
    { key: lab.server.key, sandbox: lab.sandbox, echo },
  );
  expect(result).toMatchObject({ stdout: "/tmp\n", path: expect.stringContaining("/workspace/"), received: "cba" });
});
