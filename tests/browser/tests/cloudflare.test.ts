/** Cloudflare's published addon, unmodified. */

import { expect, test } from "../kit/test.js";
import type { Lab } from "../kit/lab.js";
import type { Proxy } from "../kit/proxy.js";

async function open(lab: Lab, name: string, proxy?: Proxy): Promise<void> {
  const at = { port: proxy?.port ?? lab.server.port, sandbox: lab.sandbox, session: "default" };
  await lab.in(({ kit, args }) => kit.cloudflare(...args), [name, at, { cols: 80, rows: 24 }]);
  await lab.state(name, "connected");
}

async function count(lab: Lab, name: string, text: string): Promise<number> {
  const all: string = await lab.in(({ kit, args }) => kit.all(args), name);
  return all.split("\n").filter((line) => line === text).length;
}

// Promises: N9.
test("it connects, types, and receives the existing screen", async ({ lab }) => {
  await open(lab, "one");
  await lab.type("one", "echo mar''ker\n");
  await lab.shows("one", /^marker$/m);
  await open(lab, "two");
  await lab.shows("two", /^marker$/m);
  await lab.type("two", "echo from two\n");
  await lab.shows("one", /^from two$/m);
  expect(await lab.in(({ kit }) => kit.shown.one.origins)).toEqual([lab.pages.origin.replace("http", "ws")]);
});

// Promises: N9.
test("after a drop it has exactly one copy of what was shown", async ({ lab }) => {
  const proxy = await lab.proxy();
  await open(lab, "one", proxy);
  await lab.type("one", "seq 1 200; echo mar''ker\n");
  await lab.shows("one", /^marker$/m);
  for (let drops = 0; drops < 3; drops++) {
    proxy.cut();
    await lab.state("one", "disconnected");
    await lab.exec("true");
    await lab.state("one", "connected");
    await lab.shows("one", /^marker$/m);
    expect(await count(lab, "one", "marker")).toBe(1);
    expect(await count(lab, "one", "77")).toBe(1);
  }
  await lab.type("one", "echo still here\n");
  await lab.shows("one", /^still here$/m);
});

// Promises: N9.
test("its window's size is the terminal's", async ({ lab }) => {
  await open(lab, "one");
  await lab.in(({ kit }) => kit.shown.one.xterm.resize(101, 31));
  await lab.type("one", "stty size\n");
  await lab.shows("one", "31 101");
});

// Promises: N9.
test("an exit is reported, and the addon reconnects to a new terminal", async ({ lab }) => {
  await open(lab, "one");
  await lab.type("one", "old=1; exit 3\n");
  await expect
    .poll(() => lab.in(({ kit }) => kit.shown.one.errors))
    .toContain("Session exited with code 3");
  await lab.state("one", "disconnected");
  await lab.state("one", "connected");
  await lab.type("one", "echo \"old is ${old:-gone}\"\n");
  await lab.shows("one", "old is gone");
});

// Promises: N9.
test("beside one of ours it sees the same", async ({ lab }) => {
  await lab.open("ours");
  await open(lab, "theirs");
  await lab.type("theirs", "ls --color=always /usr\n");
  await lab.shows("ours", "share");
  await lab.type("ours", "echo from ours\n");
  await lab.shows("theirs", /^from ours$/m);
});
