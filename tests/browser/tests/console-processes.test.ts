/** The console's pages for background processes and ports. */

import { expect, test } from "../kit/console.js";

// Promises: C12.
test("a process is started, followed, fed, signalled and ended", async ({ console }) => {
  const { page } = console;
  await console.made();
  await console.open(`sandboxes/${console.id}/processes`);
  await expect(page.getByText("No background processes")).toBeVisible();
  await console.accessible("processes, empty");
  const dialog = page.getByRole("dialog");
  await console.button("Start process").click();
  await dialog.getByLabel("Command").fill(`trap 'echo got it' USR1; printf '\\033[31mred\\033[0m and plain\\n'; echo "hello $NAME"; while true; do read line && echo "read $line"; done`);
  await dialog.getByLabel("Id").fill("loop");
  await dialog.getByLabel("Environment").fill("NAME=console");
  await dialog.getByLabel("Leave standard input open").check();
  await dialog.getByRole("button", { name: "Start" }).click();
  const log = page.getByRole("log");
  await expect(log).toContainText("hello console");
  await expect(log.locator("span", { hasText: /^red$/ })).toHaveCSS("color", /rgb\((?!0, 0, 0)/);
  expect(await log.textContent()).toMatch(/^red and plain\n/);
  await page.getByLabel("Line for standard input").fill("one line");
  await page.keyboard.press("Enter");
  await expect(log).toContainText("read one line");
  await console.accessible("the log of a process");
  await console.button("Signal").click();
  await dialog.getByLabel("Signal").selectOption("USR1");
  await dialog.getByRole("button", { name: "Send" }).click();
  await expect(log).toContainText("got it");
  await console.picture("process-log");
  await console.button(/^End$/).click();
  await dialog.getByRole("button", { name: "End", exact: true }).click();
  await expect(page.locator(".process .state")).toHaveText(/signal (15|9)/);
  await page.getByRole("link", { name: "All processes" }).click();
  const row = page.locator('[data-process="loop"]');
  await expect(row).toContainText("signal");
  await console.picture("processes");
  await console.accessible("processes");
  await console.button("Remove loop").click();
  await dialog.getByRole("button", { name: "Remove" }).click();
  await expect(row).toHaveCount(0);
});

// Promises: C12.
test("a port is shown, opened through a link, and its links are revoked", async ({ console }) => {
  const { page } = console;
  await console.made();
  await console.open(`sandboxes/${console.id}/ports`);
  await expect(page.getByText("No program listens on a port")).toBeVisible();
  await console.accessible("ports, empty");
  await console.api("POST", `/v1/sandboxes/${console.id}/processes`, {
    command: "echo served >index.html; exec python3 -m http.server 8000 --bind 127.0.0.1",
  });
  const row = page.locator('[data-port="8000"]');
  await expect(row).toContainText("listens");
  await expect(row).toContainText("no links");
  await console.button("Create link").first().click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Port").fill("8000");
  await dialog.getByLabel("Name").fill("preview");
  await dialog.getByRole("button", { name: "Create" }).click();
  await expect(dialog.locator("code")).toContainText("isolet-token=");
  await console.accessible("a new link");
  const url = (await dialog.locator("code").textContent())!;
  const program = await page.context().newPage();
  await program.goto(url);
  await expect(program.locator("body")).toHaveText("served");
  await dialog.getByRole("button", { name: "Close" }).last().click();
  await expect(row).toContainText("preview");
  const [opened] = await Promise.all([page.context().waitForEvent("page"), row.getByRole("button", { name: "Open", exact: true }).click()]);
  await expect(opened.locator("body")).toHaveText("served");
  await opened.close();
  await console.picture("ports");
  await console.accessible("ports");
  await row.getByRole("button", { name: "Revoke all links to port 8000" }).click();
  await dialog.getByRole("button", { name: "Revoke" }).click();
  await expect(row).toContainText("no links");
  await program.context().clearCookies();
  await program.goto(url);
  await expect(program.locator("body")).not.toHaveText("served");
  await program.close();
});

test("sleep asks first when it would end something", async ({ console }) => {
  const { page } = console;
  await console.made();
  await console.api("POST", `/v1/sandboxes/${console.id}/processes`, { id: "daemon", command: "sleep 600" });
  await console.open(`sandboxes/${console.id}`);
  await console.button("Sleep").click();
  const dialog = page.getByRole("dialog");
  await expect(dialog).toContainText("process daemon: sleep 600");
  await console.picture("sleep-asks");
  await dialog.getByRole("button", { name: "Cancel" }).click();
  await expect(page.locator(".bar .state")).toHaveText("running");
  await console.button("Sleep").click();
  await dialog.getByRole("button", { name: "Put to sleep" }).click();
  await expect(page.locator(".bar .state")).toHaveText("sleeping");
});
