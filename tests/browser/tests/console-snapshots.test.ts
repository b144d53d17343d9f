/** The console's page of snapshots. */

import { expect, test } from "../kit/console.js";

interface Sandboxes {
  id: string;
  state: string;
}

// Promises: C11.
test("a snapshot is taken, restored, starts a sandbox, and is deleted", async ({ console }) => {
  const { page } = console;
  await console.made();
  await console.exec("default", "echo old >/workspace/f");
  await console.open(`sandboxes/${console.id}/snapshots`);
  await expect(page.getByText("No snapshots yet")).toBeVisible();
  const dialog = page.getByRole("dialog");
  const name = `${console.id}-point`;

  await page.getByRole("button", { name: "Take snapshot" }).click();
  await dialog.getByLabel("Name").fill(name);
  await dialog.getByRole("button", { name: "Take" }).click();
  const row = page.locator(`[data-snapshot="${name}"]`);
  await expect(row).toBeVisible();
  await console.picture("snapshots");

  await console.exec("default", "echo new >/workspace/f");
  await row.getByRole("button", { name: "Restore" }).click();
  await expect(dialog).toContainText("ends everything that runs");
  await page.keyboard.press("Escape");
  await expect(dialog).toHaveCount(0);
  expect((await console.exec("default", "cat /workspace/f")).stdout).toBe("new\n");
  await row.getByRole("button", { name: "Restore" }).click();
  await dialog.getByRole("button", { name: "Restore" }).click();
  await expect(dialog).toHaveCount(0);
  expect((await console.exec("default", "cat /workspace/f")).stdout).toBe("old\n");

  const copy = `${console.id}-copy`;
  await row.getByRole("button", { name: "New sandbox" }).click();
  await dialog.getByLabel("Id").fill(copy);
  await dialog.getByRole("button", { name: "Create" }).click();
  await expect(page.getByRole("heading", { name: copy })).toBeVisible();
  const path = `/v1/sandboxes/${copy}/exec`;
  expect((await console.api<{ stdout: string }>("POST", path, { command: "cat /workspace/f" })).stdout).toBe("old\n");
  await console.api("DELETE", `/v1/sandboxes/${copy}`);

  await console.go(`sandboxes/${console.id}/snapshots`);
  await row.getByRole("button", { name: "Delete snapshot" }).click();
  await dialog.getByRole("button", { name: "Delete" }).click();
  await expect(row).toHaveCount(0);
});

// Promises: C11.
test("a fork creates the number of copies that was asked for", async ({ console }) => {
  const { page } = console;
  await console.made();
  await console.open(`sandboxes/${console.id}/snapshots`);
  const before = (await console.api<Sandboxes[]>("GET", "/v1/sandboxes")).map(({ id }) => id);
  await page.getByRole("button", { name: "Fork" }).click();
  const dialog = page.getByRole("dialog");
  const act = dialog.getByRole("button", { name: "Fork" });
  await dialog.getByLabel("Copies").fill("0");
  await expect(act).toBeDisabled();
  await dialog.getByLabel("Copies").fill("2");
  await act.click();
  await expect(page.getByRole("heading", { name: /Sandboxes/ })).toBeVisible();
  const made = (await console.api<Sandboxes[]>("GET", "/v1/sandboxes")).filter(({ id }) => !before.includes(id));
  expect(made.map(({ state }) => state)).toEqual(["running", "running"]);
  for (const { id } of made) await console.api("DELETE", `/v1/sandboxes/${id}`);
});
