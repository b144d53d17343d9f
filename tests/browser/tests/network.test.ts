/** Networks that are cut, paused and slow. */

import { expect, test } from "../kit/test.js";
import { Lab } from "../kit/lab.js";
import { Server } from "../kit/server.js";

// Promises: N3.
test("a hundred cuts at random moments double no byte and lose none", async ({ lab }) => {
  test.setTimeout(300_000);
  const proxy = await lab.proxy();
  await lab.exec(
    "printf '%s\\n' 'for i in $(seq 1 100000); do' 'printf \"%06d \\e[3%dm%s\\e[0m größe\\n\" $i $((i % 8)) $RANDOM$RANDOM' " +
      "'((i % 40)) || sleep 0.02' '[ -e /tmp/enough ] && break' 'done | tee /tmp/written; echo \"end of it\"' > /workspace/flow.sh",
  );
  const reconnect = { initialDelayMs: 5, maxDelayMs: 30, maxAttempts: 10_000 };
  await lab.open("stayed");
  await lab.open("one", { proxy, terminal: { reconnect } });
  await lab.in(({ kit }) => kit.collectOutput("one"));
  await lab.in(({ kit }) => kit.collectOutput("stayed"));
  await lab.type("stayed", "bash /workspace/flow.sh\n");
  await lab.shows("one", /^0\d{5} \d+ größe$/m);
  for (let cuts = 0; cuts < 100; cuts++) {
    const made = proxy.made;
    // In the upgrade's response headers, in the frames before `ready`, or anywhere in the output.
    proxy.cutAfter(Math.floor(Math.random() * (cuts % 2 ? 600 : 6000)));
    await expect.poll(() => proxy.made, { timeout: 40_000, intervals: [5] }).toBeGreaterThan(made);
  }
  proxy.cutAfter(Infinity);
  await lab.exec("touch /tmp/enough");
  await lab.shows("one", "end of it", 30_000);
  await lab.same("stayed", "one");
  const { gaps, text } = await lab.in(({ kit }) => kit.collectedOutput("one"));
  expect(gaps).toEqual([]);
  expect(await lab.in(({ kit }) => kit.shown.one.missed)).toBe(0);
  const written = Buffer.from(await lab.exec("cat /tmp/written")).toString("latin1").replaceAll("\n", "\r\n");
  expect(written.length).toBeGreaterThan(20_000);
  const from = (text as string).indexOf("000001 ");
  expect((text as string).slice(from, from + written.length) === written).toBe(true);
});

// Promises: N4.
test("a page that does not read delays no other client, and later shows the same screen", async ({ lab }) => {
  test.setTimeout(240_000);
  const proxy = await lab.proxy();
  await lab.open("stayed");
  await lab.open("stalled", { proxy });
  proxy.stall();
  const before = await lab.in(({ kit }) => kit.shown.stalled.terminal.offset);
  await lab.type("stayed", "seq 1 600000; echo all of it\n");
  await lab.shows("stayed", /^all of it$/m, 90_000);
  expect(await lab.in(({ kit }) => kit.shown.stalled.terminal.offset)).toBe(before);
  proxy.go();
  await lab.shows("stalled", /^all of it$/m);
  await lab.same("stayed", "stalled");
});

// Promises: N4.
test("a slow page buffers no more than its limit, and sees the end", async ({ lab }) => {
  test.setTimeout(240_000);
  await lab.open("one", { unparsedMax: 256 * 1024 });
  await lab.in(({ kit }) => {
    const { xterm, addon } = kit.shown.one;
    const write = xterm.write.bind(xterm);
    kit.maxUnparsed = kit.pauses = 0;
    let waiting = 0;
    // Slower than any page: parses 64 KiB per turn, a few turns per second.
    xterm.write = (data: Uint8Array, done?: () => void) => {
      kit.maxUnparsed = Math.max(kit.maxUnparsed, (waiting += data.length));
      setTimeout(() => {
        waiting -= data.length;
        write(data, done);
      }, 20);
    };
    addon.terminal.on("state", (state: string) => (kit.pauses += state === "paused" ? 1 : 0));
  });
  await lab.type("one", "head -c 10000000 /dev/zero | tr '\\0' x | fold -w 79; echo; echo all of it\n");
  await lab.shows("one", /^all of it$/m, 90_000);
  const { maxUnparsed, pauses } = await lab.in(({ kit }) => ({ maxUnparsed: kit.maxUnparsed, pauses: kit.pauses }));
  expect(pauses).toBeGreaterThan(0);
  // The limit, one message, and a snapshot.
  expect(maxUnparsed).toBeLessThan(1024 * 1024);
  await lab.open("new");
  await lab.same("one", "new");
});

// Promises: N5.
test("typing detects a dead connection", async ({ lab }) => {
  const proxy = await lab.proxy();
  await lab.open("one", { proxy });
  await lab.settled(["one"]);
  proxy.stall();
  await lab.page.waitForTimeout(3100);
  await lab.type("one", "x");
  await lab.state("one", "reconnecting");
  proxy.cut();
  proxy.go();
  await lab.state("one", "connected");
  await lab.press("one", "Control+u");
  await lab.type("one", "echo back again\n");
  await lab.shows("one", /^back again$/m);
});

// Promises: N5.
test("the client reconnects as soon as the browser is online", async ({ lab }) => {
  const proxy = await lab.proxy();
  await lab.open("one", { proxy, terminal: { reconnect: { initialDelayMs: 600_000, maxDelayMs: 600_000 } } });
  proxy.refuse();
  proxy.cut();
  await lab.state("one", "reconnecting");
  await lab.page.context().setOffline(true);
  proxy.go();
  await lab.page.context().setOffline(false);
  await lab.state("one", "connected");
});

// Promises: N6.
test("what is typed while the connection is lost is not sent later", async ({ lab }) => {
  const proxy = await lab.proxy();
  await lab.open("one", { proxy });
  proxy.refuse();
  proxy.cut();
  await lab.state("one", "reconnecting");
  await lab.type("one", "touch /tmp/late\n");
  proxy.go();
  await lab.state("one", "connected");
  await lab.type("one", "echo and now\n");
  await lab.shows("one", /^and now$/m);
  expect(await lab.exec("ls /tmp")).not.toContain("late");
});

// Promises: N5.
test("reconnecting gives up after the last attempt and reports it", async ({ lab }) => {
  const proxy = await lab.proxy();
  await lab.open("one", { proxy, terminal: { reconnect: { initialDelayMs: 5, maxDelayMs: 10, maxAttempts: 3 } } });
  proxy.refuse();
  proxy.cut();
  await lab.state("one", "closed");
  const { states, errors } = await lab.in(({ kit }) => ({
    states: kit.shown.one.states,
    errors: kit.shown.one.errors,
  }));
  expect((states as string[]).filter((state) => state === "reconnecting")).toHaveLength(3);
  expect(errors).toHaveLength(1);
});

// Promises: N5.
test("a killed server comes back, and the terminal with it", async ({ world, page }) => {
  const server = await Server.start([world.pages.origin]);
  const lab = new Lab(server, world.pages, page);
  try {
    await lab.begin();
    await lab.open("one");
    await lab.type("one", "value=$((6*7)); (sleep 1; echo job done) &\n");
    await lab.settled(["one"]);
    await server.kill();
    await lab.state("one", "reconnecting");
    await server.up();
    await lab.state("one", "connected");
    await lab.shows("one", /job done$/m);
    await lab.type("one", "echo value $value\n");
    await lab.shows("one", /^value 42$/m);
    await lab.open("new");
    await lab.same("one", "new");
  } finally {
    await lab.end();
    await server.stop();
  }
});

// Promises: N6.
test("a terminal that ended during an interruption is not started again, and the client learns of it", async ({ lab }) => {
  const proxy = await lab.proxy();
  const once = ["-c", "echo x >> /workspace/runs; echo of the first; sleep 1000"];
  await lab.open("one", { proxy, terminal: { shell: "bash", args: once } });
  await lab.shows("one", /^of the first$/m);
  proxy.refuse();
  proxy.cut();
  await lab.state("one", "reconnecting");
  await lab.server.json("DELETE", `/v1/sandboxes/${lab.sandbox}/terminals/default`);
  proxy.go();
  await lab.state("one", "closed");
  expect(await lab.in(({ kit }) => kit.shown.one.errors)).toEqual(["the terminal ended while the connection was lost"]);
  expect(await lab.exec("cat /workspace/runs")).toBe("x\n");
  // Attaching again opens a new terminal.
  await lab.in(({ kit }) => kit.shown.one.connect());
  await lab.state("one", "connected");
  await expect.poll(() => lab.exec("cat /workspace/runs")).toBe("x\nx\n");
});

// Promises: N6.
test("a sandbox that was deleted during an interruption is not created again", async ({ lab }) => {
  const proxy = await lab.proxy();
  await lab.open("one", { proxy });
  proxy.refuse();
  proxy.cut();
  await lab.state("one", "reconnecting");
  await lab.server.json("DELETE", `/v1/sandboxes/${lab.sandbox}`);
  proxy.go();
  await lab.state("one", "closed");
  const answer = await fetch(`${lab.server.url}/v1/sandboxes/${lab.sandbox}`, { headers: lab.server.headers });
  expect(answer.status).toBe(404);
});
