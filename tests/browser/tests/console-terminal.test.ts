/** Terminals in the console. */

import { expect, MARKUP, test } from "../kit/console.js";

test.beforeEach(async ({ console }, info) => {
  if (!info.title.includes("WebGL")) await console.plain();
});

// Promises: C8.
test("from the printed address to a terminal in three clicks", async ({ console }) => {
  const { page } = console;
  await console.open();
  await console.button("New sandbox").first().click();
  await page.keyboard.type(console.id);
  await console.button("Create and open a terminal").click();
  await console.ready();
  await console.type("echo $((20 + 22)) answers");
  await console.shows("42 answers");
  await expect(page.getByRole("tab", { name: "default" })).toHaveAttribute("aria-selected", "true");
});

// Promises: C8.
test("terminals stay open while other tabs are shown, and keep running after a detach", async ({ console }) => {
  const { page } = console;
  await console.made();
  await console.open(`sandboxes/${console.id}/terminal`);
  await console.ready();
  await console.type("first=1; cd /tmp; clear; echo in the first");
  await console.shows(/^in the first/m);
  await page.getByRole("link", { name: "Terminal", exact: true }).click();
  await expect(page.getByRole("tab", { name: "t2" })).toHaveAttribute("aria-selected", "true");
  await console.ready();
  await console.type("clear; echo ${first-in the second} $PWD");
  await console.shows("in the second /workspace");
  await page.getByRole("tab", { name: "Files" }).click();
  await page.getByRole("tab", { name: "default" }).click();
  await console.shows(/^in the first/m);
  await console.type('echo "still $first $PWD"');
  await console.shows("still 1 /tmp");
  await console.button("Detach from the terminal of default").click();
  await expect(page.getByRole("tab", { name: "default" })).toHaveCount(0);
  await console.go(`sandboxes/${console.id}/terminal/default`);
  await console.shows("still 1 /tmp");
});

test("other clients are shown, the last one to type decides the size, and a viewer cannot type", async ({ console }) => {
  const { page } = console;
  await console.made();
  await console.open(`sandboxes/${console.id}/terminal`);
  await console.ready();
  const other = await console.other();
  await other.plain();
  await other.page.setViewportSize({ width: 900, height: 600 });
  await other.open(`sandboxes/${console.id}/terminal`);
  await other.ready();
  await expect(page.locator(".who .chip")).toHaveText("console");
  await other.type("clear; echo from the other");
  await console.shows(/^from the other/m);
  await expect(page.locator(".foreign")).toContainText("Another client typed last");
  const size = await other.page.locator(".terminal-head .size").textContent();
  await expect(page.locator(".terminal-head .size")).toHaveText(size!);
  await console.type("echo back");
  await expect(page.locator(".foreign")).toHaveCount(0);
  await expect(page.locator(".terminal-head .size")).not.toHaveText(size!);
  await other.button("View only").click();
  await expect(other.page.locator(".foreign")).toContainText("View only");
  await other.page.locator(".xterm-helper-textarea").focus();
  await other.page.keyboard.type("never\n");
  await console.type("echo the last line");
  await other.shows(/^the last line/m);
  expect(await other.screen()).not.toContain("never");
});

// Promises: C8.
test("a shell that exits shows its code, and Enter starts a new one", async ({ console }) => {
  const { page } = console;
  await console.made();
  await console.open(`sandboxes/${console.id}/terminal`);
  await console.ready();
  await console.type("exit 3");
  await expect(page.locator(".over")).toContainText("The shell has exited with code 3");
  await console.picture("terminal-ended");
  await page.locator(".xterm-helper-textarea").focus();
  await page.keyboard.press("Enter");
  await expect(page.locator(".over")).toHaveCount(0);
  await console.ready();
  await console.type("echo again");
  await console.shows(/^again/m);
});

// Promises: C8.
test("a server that is killed costs a terminal nothing", async ({ console }) => {
  const { page, server } = console;
  await console.made();
  await console.open(`sandboxes/${console.id}/terminal`);
  await console.ready();
  await console.type("clear; i=0; while sleep 0.2; do echo $((i++)) >> /tmp/ticks; done & echo begun");
  await console.shows("begun");
  await server.kill();
  await expect(page.locator(".over")).toContainText("Connection lost");
  await console.picture("terminal-lost");
  await server.up();
  await expect(page.locator(".over")).toHaveCount(0);
  await console.type("kill %1; echo here again");
  await console.shows("here again");
  expect(await console.screen()).toContain("begun");
});

test("a recording can be downloaded", async ({ console }) => {
  const { page } = console;
  await console.made();
  await console.open(`sandboxes/${console.id}/terminal`);
  await console.ready();
  await console.button("Record").click();
  await expect(page.locator(".recording")).toBeVisible();
  await console.type("echo this is recorded");
  await console.shows(/^this is recorded/m);
  const coming = page.waitForEvent("download");
  await console.button("Stop recording and download it").click();
  const { readFileSync } = await import("node:fs");
  const lines = readFileSync(await (await coming).path(), "utf8").trim().split("\n");
  expect(JSON.parse(lines[0]!).version).toBe(2);
  expect(lines.join("")).toContain("this is recorded");
  await console.go(`sandboxes/${console.id}/details`);
  await expect(page.getByRole("heading", { name: "Recordings" })).toBeVisible();
});

// Promises: C9.
test("escape sequences cannot affect the page", async ({ console }) => {
  const { page } = console;
  await console.made();
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  await console.open(`sandboxes/${console.id}/terminal`);
  await console.ready();
  await page.evaluate(() => navigator.clipboard.writeText("mine"));
  // A prompt that does not set a title.
  await console.type("PS1='$ '");
  const opened: string[] = [];
  page.context().on("page", (other) => opened.push(other.url()));
  const hex = Buffer.from(MARKUP).toString("hex").replace(/../g, "\\x$&");
  await console.type(`printf '\\e]2;${hex}\\a'`);
  await expect(page.locator(".terminal-title")).toHaveText(MARKUP);
  await console.type(`printf '\\e]52;c;%s\\a' "$(echo stolen | base64)"`);
  await console.type(`printf '\\e]8;;javascript:window.pwned=1\\aclick here\\e]8;;\\a\\n'; echo printed`);
  await console.shows(/^printed/m);
  const at = await page.locator(".xterm-rows > div", { hasText: /^click.here/ }).boundingBox();
  await page.mouse.click(at!.x + 20, at!.y + at!.height / 2);
  await console.type("echo reading; cat -v; echo done");
  // Pressed before the line runs, Ctrl-D would not be the end of input.
  await console.shows(/^reading/m);
  await page.keyboard.press("Control+d");
  await console.shows(/^done/m);
  expect(await page.evaluate(() => navigator.clipboard.readText())).toBe("mine");
  expect(opened).toEqual([]);
  expect(await console.screen()).not.toMatch(/\^\[/);
});

test("colours that no palette has are drawn without inline styles", async ({ console }) => {
  const { page } = console;
  await page.emulateMedia({ colorScheme: "dark" });
  await console.made();
  await console.open(`sandboxes/${console.id}/terminal`);
  await console.ready();
  await console.type("clear; printf '\\e[38;2;12;200;99mcoloured\\e[48;2;1;2;3m ground\\e[0m\\n'");
  await console.shows(/^coloured/m);
  const span = page.locator(".xterm-rows span", { hasText: /^coloured/ }).first();
  await expect(span).toHaveCSS("color", "rgb(12, 200, 99)");
});

test("with WebGL a terminal draws on a canvas and takes what is typed", async ({ console }) => {
  const { page } = console;
  await console.made();
  await console.open(`sandboxes/${console.id}/terminal`);
  await expect(page.locator(".handle.live")).toBeVisible();
  await console.type("echo $((6 * 7)) > /workspace/typed");
  await expect
    .poll(async () =>
      (await fetch(`${console.server.url}/v1/sandboxes/${console.id}/files/typed`, { headers: console.server.headers })).text(),
    )
    .toBe("42\n");
  await page.locator(".xterm-helper-textarea").focus();
  await page.keyboard.press("Control+Shift+F");
  await page.getByLabel("Search in the terminal").fill("typed");
  await expect(page.locator(".terminal-search .dim")).toHaveText(/^\d+\/\d+$/);
  await page.keyboard.press("Escape");
  await page.keyboard.press("Control+Shift+L");
  await expect(page.getByRole("tab", { name: "default" })).toBeFocused();
  await page.keyboard.press("ArrowLeft");
  await expect(page.getByRole("tab", { name: "Details" })).toBeFocused();
});

// Promises: C8.
test("a sandbox is put to sleep from a page that has its terminal open, which does not wake it", async ({ console }) => {
  const { page } = console;
  await console.made();
  await console.open(`sandboxes/${console.id}/terminal`);
  await console.ready();
  await console.button("Sleep").click();
  await expect(page.locator(".bar .state")).toHaveText("sleeping");
  await expect(page.locator(".handle")).toHaveCount(0);
  await page.getByRole("link", { name: "Terminal", exact: true }).first().click();
  await console.ready();
  await expect(page.locator(".bar .state")).toHaveText("running");
});
