/** The console's pages for events, the audit log and keys, and what a read-only key sees. */

import { expect, test } from "../kit/console.js";

// Promises: C15.
test("events are shown as they happen, and filtered", async ({ console }) => {
  const { page } = console;
  await console.open("events");
  await console.made();
  await console.exec("dev", "true");
  await page.getByLabel("Filter").fill(console.id);
  const rows = page.locator(".events .row");
  await expect(rows.filter({ hasText: "command exited" })).toHaveCount(1);
  await expect(rows.filter({ hasText: "created" }).first()).toBeVisible();
  await page.getByLabel("Kind").selectOption("commands");
  await expect(rows.filter({ hasText: /^running/ })).toHaveCount(0);
  await console.picture("events");
  await console.accessible("events");
  await console.button("Pause").click();
  await console.exec("dev", "(exit 4)");
  await console.button("Continue").click();
  await expect(rows.filter({ hasText: "code 4" })).toHaveCount(1);
  await page.getByLabel("Filter").fill("no such event");
  await expect(page.getByText("No event matches")).toBeVisible();
});

// Promises: C15.
test("the audit log is browsed and downloaded", async ({ console }) => {
  const { page } = console;
  await console.made();
  await console.exec("dev", "true");
  await console.open("audit");
  await page.getByLabel("Filter").fill(`${console.id} exec`);
  const row = page.locator(".audit .row").first();
  await expect(row).toContainText("exec.start");
  await expect(row).toContainText("ISOLET_API_KEY");
  await console.picture("audit");
  await console.accessible("audit");
  const coming = page.waitForEvent("download");
  await console.button("Download").click();
  const { readFileSync } = await import("node:fs");
  const lines = readFileSync(await (await coming).path(), "utf8").trim().split("\n");
  expect(lines.some((line) => JSON.parse(line).sandbox_id === console.id)).toBe(true);
});

// Promises: C15.
test("a key is created, shown once, used, and revoked", async ({ console }) => {
  const { page } = console;
  await console.open("keys");
  await console.button("New key").click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Label").fill(console.id);
  await dialog.getByLabel("Lifetime").fill("1h");
  await console.accessible("a new key");
  await dialog.getByRole("button", { name: "Create" }).click();
  const secret = (await dialog.locator("code").textContent())!;
  expect(secret).toMatch(/^isolet_[0-9a-f]{64}$/);
  await dialog.getByRole("button", { name: "Done" }).click();
  const row = page.locator(".api-keys .row", { hasText: console.id });
  await expect(row).toContainText("valid");
  expect(await page.content()).not.toContain(secret);
  await console.picture("keys");
  await console.accessible("keys");
  const other = await console.other();
  await other.open("keys", secret);
  await expect(other.page.locator(".api-keys .row", { hasText: "this key" })).toContainText(console.id);
  await row.getByRole("button", { name: "Revoke" }).click();
  await dialog.getByRole("button", { name: "Revoke" }).click();
  await expect(row).toHaveCount(0);
  await expect(other.page.getByLabel("API key")).toBeVisible();
  await page.getByLabel("Revoked and expired").check();
  await expect(row).toContainText("revoked");
});

// Promises: C16.
test("a key that may only read sees no control that changes something", async ({ console }) => {
  const { page } = console;
  await console.made();
  await console.exec("default", "echo text >/workspace/file");
  await console.api("POST", `/v1/sandboxes/${console.id}/processes`, { id: "daemon", command: "sleep 600" });
  const { id, secret } = await console.newKey({ read_only: true });
  await console.open("", secret);
  await expect(page.locator(".bottom")).toContainText("read-only key");
  const changing = /^(New|Create|Start|Add|Edit|Sleep|Wake|Destroy|Delete|Remove|Revoke|Rename|Upload|Restore|Fork|Take|Pull|Open|End|Signal|Send|Run|Change|Record|Put|Close this|Allow)\b/;
  const places = ["sandboxes", ...["sessions", "commands", "processes", "files", "ports", "network", "snapshots", "details"].map((tab) => `sandboxes/${console.id}/${tab}`), `sandboxes/${console.id}/processes/daemon`, "images", "snapshots", "events", "audit", "keys"];
  for (const place of places) {
    await console.go(place);
    await expect(page.locator(".loading")).toHaveCount(0);
    if (place.endsWith("/files")) await page.getByRole("button", { name: "file", exact: true }).click();
    const names = await page.getByRole("button").evaluateAll((all) => all.map((one) => one.ariaLabel || (one as HTMLElement).innerText));
    expect(names.filter((name) => changing.test(name.trim())), place).toEqual([]);
  }
  await page.keyboard.press("n");
  await expect(page.getByRole("dialog")).toHaveCount(0);
  await console.api("DELETE", `/v1/keys/${id}`);
});
