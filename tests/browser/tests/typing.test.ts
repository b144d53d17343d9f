/** A terminal in a page, as a user operates it. */

import { expect, test } from "../kit/test.js";

// Promises: N1.
test("what is typed is run, and Ctrl-C ends a sleep", async ({ lab }) => {
  await lab.open("one");
  await lab.type("one", "echo $((6*7)) $TERM\n");
  await lab.shows("one", "42 xterm-256color");
  await lab.type("one", "sleep 1000; echo code $?\n");
  await expect.poll(() => lab.exec("pgrep -x sleep || true")).not.toBe("");
  await lab.press("one", "Control+c");
  await lab.type("one", "echo after $?\n");
  await lab.shows("one", "after 130");
  expect(await lab.exec("pgrep -x sleep || true")).toBe("");
});

// Promises: N1.
test("a paste is a single input, and bytes outside ASCII arrive unchanged", async ({ lab }) => {
  await lab.open("one");
  await lab.type("one", "cat -v > /tmp/pasted\n");
  // Before that, the shell would receive a bracketed paste.
  await expect.poll(() => lab.exec("pgrep -x cat || true")).not.toBe("");
  await expect.poll(() => lab.in(({ kit }) => kit.shown.one.xterm.modes.bracketedPasteMode)).toBe(false);
  await lab.in(({ kit }) => kit.shown.one.xterm.paste("größe\rzwei\r"));
  await lab.press("one", "Control+d");
  await expect.poll(() => lab.exec("cat /tmp/pasted || true")).toContain("zwei");
  expect(await lab.exec("cat /tmp/pasted")).toBe("grM-CM-6M-CM-^_e\nzwei\n");
});

// Promises: N8.
test("two clients see the same, and both may type", async ({ lab }) => {
  await lab.open("one", { terminal: { name: "Ada" } });
  await lab.open("two", { terminal: { name: "Bob" } });
  await lab.type("one", "echo from one\n");
  await lab.shows("two", /^from one$/m);
  await lab.type("two", "echo from two\n");
  await lab.shows("one", /^from two$/m);
  await lab.same("one", "two");
});

// Promises: N8.
test("clients see who is attached, and who typed last", async ({ lab }) => {
  await lab.open("one", { terminal: { name: "Ada" } });
  await lab.open("two", { terminal: { name: "Bob" }, mode: "view" });
  const names = (): Promise<unknown> =>
    lab.in(({ kit }) => kit.shown.one.clients.map((c: { name: string; mode: string }) => [c.name, c.mode]));
  await expect.poll(names).toEqual([
    ["Ada", "edit"],
    ["Bob", "view"],
  ]);
  await lab.in(({ kit }) => kit.shown.two.addon.disconnect());
  await expect.poll(names).toEqual([["Ada", "edit"]]);
});

// Promises: N8.
test("a viewer sees all and types nothing", async ({ lab }) => {
  await lab.open("one");
  await lab.open("viewer", { mode: "view", cols: 100, rows: 40 });
  await lab.type("viewer", "echo stolen\n");
  const refused = await lab.in(({ kit }) => {
    try {
      kit.shown.viewer.terminal.write("echo stolen\n");
      return "written";
    } catch (error) {
      return (error as { code: string }).code;
    }
  });
  expect(refused).toBe("view_only");
  await lab.type("one", "echo ki''nd; stty size\n");
  await lab.shows("viewer", /^kind$/m);
  await lab.shows("viewer", "24 80");
  await lab.same("one", "viewer");
  expect(await lab.in(({ kit }) => kit.screen("one"))).not.toContain("stolen");
});

// Promises: N8.
test("the terminal has the size of the client that typed last, for all clients", async ({ lab }) => {
  await lab.open("one", { cols: 80, rows: 24 });
  await lab.open("two", { cols: 100, rows: 30 });
  const sizes = (): Promise<unknown> =>
    lab.in(({ kit }) => ["one", "two"].map((n) => `${kit.shown[n].xterm.cols}x${kit.shown[n].xterm.rows}`));
  await lab.type("two", "stty size\n");
  await lab.shows("one", "30 100");
  await expect.poll(sizes).toEqual(["100x30", "100x30"]);
  await lab.type("one", "stty size\n");
  await lab.shows("two", "24 80");
  await expect.poll(sizes).toEqual(["80x24", "80x24"]);
  await lab.same("one", "two");
});

test("a window that changes tells the program", async ({ lab }) => {
  await lab.open("one");
  await lab.in(({ kit }) => {
    kit.shown.one.window = { cols: 132, rows: 43 };
    kit.shown.one.addon.fit();
  });
  await lab.type("one", "stty size\n");
  await lab.shows("one", "43 132");
  // Resize xterm.js directly, as FitAddon.fit does.
  await lab.in(({ kit }) => kit.shown.one.xterm.resize(90, 20));
  await lab.type("one", "stty size\n");
  await lab.shows("one", "20 90");
});

// Promises: N1.
test("an exit is reported with its code, and the next attach opens a new terminal", async ({ lab }) => {
  await lab.open("one");
  await lab.type("one", "x=1; exit 7\n");
  await lab.state("one", "closed");
  expect(await lab.in(({ kit }) => kit.shown.one.exits)).toEqual([{ code: 7 }]);
  await lab.in(({ kit }) => kit.shown.one.connect());
  await lab.state("one", "connected");
  await lab.type("one", "echo \"x is ${x:-gone}\"\n");
  await lab.shows("one", "x is gone");
  expect(await lab.in(({ kit }) => kit.screen("one"))).not.toContain("exit 7");
});

// Promises: N1.
test("an exit by a signal is reported with its name", async ({ lab }) => {
  await lab.open("one", { terminal: { shell: "sleep", args: ["1000"] } });
  await lab.exec("pkill -TERM -x sleep");
  await lab.state("one", "closed");
  expect(await lab.in(({ kit }) => kit.shown.one.exits)).toEqual([{ code: 143, signal: "SIGTERM" }]);
});

test("a page of the server's own origin attaches by the SDK with a key", async ({ lab }) => {
  await lab.loadAtServer();
  const at = { key: lab.server.key, sandbox: lab.sandbox, session: "other" };
  await lab.in(({ kit, args }) => kit.open("one", args, { cols: 80, rows: 24 }), at);
  await lab.state("one", "connected");
  await lab.type("one", "echo by the key\n");
  await lab.shows("one", /^by the key$/m);
});
