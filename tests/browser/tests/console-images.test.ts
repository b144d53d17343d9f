/** The console's pages for images and for snapshots of all sandboxes. */

import { expect, test } from "../kit/console.js";

// Promises: C14.
test("an image is pulled with its progress shown, started, and removed", async ({ console, world }) => {
  const { page } = console;
  const name = `${world.registry.host}/tools:1`;
  await fetch(`${console.server.url}/v1/images/${name}`, { method: "DELETE", headers: console.server.headers });
  await console.open("images");
  await expect(page.getByText("No images yet")).toBeVisible();
  await console.accessible("images, empty");
  const dialog = page.getByRole("dialog");
  const pull = async (image: string): Promise<void> => {
    await console.button("Pull image").first().click();
    await dialog.getByLabel("Image").fill(image);
    await dialog.getByRole("button", { name: "Pull" }).click();
  };
  await pull(`${world.registry.host}/missing:1`);
  await expect(page.getByRole("list", { name: "Pulls" }).getByRole("alert")).toBeVisible();
  await console.button("Dismiss").first().click();
  const release = world.registry.hold();
  await pull(name);
  await expect(page.locator(`[data-pull="${name}"] progress`)).toBeVisible();
  await console.picture("images-pull");
  await console.accessible("images, pulling");
  release();
  const row = page.locator(`[data-image="${name}"]`);
  await expect(row).toContainText("registry");
  await expect(page.locator("[data-pull]")).toHaveCount(0);
  await console.picture("images");
  await console.accessible("images");
  await row.getByRole("button", { name: "New sandbox" }).click();
  await expect(dialog.getByLabel("Image")).toHaveValue(name);
  await page.keyboard.press("Escape");
  await console.button(`Remove the name ${name}`).click();
  await expect(dialog).toContainText("last name");
  await dialog.getByRole("button", { name: "Remove" }).click();
  await expect(row).toHaveCount(0);
});

// Promises: C14.
test("an image gets and loses names, and configured ones are shown but not changed", async ({ console, world }) => {
  const { page } = console;
  const first = `${world.registry.host}/tools:1`;
  await console.api("POST", "/v1/images/pull", { image: first });
  const alias = page.locator('[data-alias="node:22-slim"]');
  await console.open("images");
  const row = page.locator(".images .row", { hasText: first });
  await expect(row).toBeVisible();
  await expect(alias).toContainText("host");
  await expect(alias.getByRole("button", { name: /Remove/ })).toHaveCount(0);
  const dialog = page.getByRole("dialog");
  const add = async (name: string): Promise<void> => {
    await row.getByRole("button", { name: "Add name" }).click();
    await dialog.getByLabel("New name").fill(name);
    await dialog.getByRole("button", { name: "Add name" }).click();
  };
  const second = `docker.io/library/${console.id}:1`;
  await add(`${console.id}:1`);
  await expect(dialog).toHaveCount(0);
  await expect(row).toContainText(second);
  await expect(row).toContainText(first);
  // A name of the operator is refused, and the dialog says why.
  await add("node:22-slim");
  await expect(dialog.getByRole("alert")).toContainText('the image name "node:22-slim" stand for host');
  await console.accessible("a refused name");
  await console.picture("images-name-refused");
  await page.keyboard.press("Escape");
  await console.accessible("images with names");
  await console.picture("images-names");
  await alias.getByRole("button", { name: "New sandbox" }).click();
  await expect(dialog.getByLabel("Image")).toHaveValue("node:22-slim");
  await page.keyboard.press("Escape");
  await console.button(`Remove the name ${second}`).click();
  await expect(dialog).toContainText("keeps its other names");
  await dialog.getByRole("button", { name: "Remove" }).click();
  await expect(row).not.toContainText(second);
  await expect(row).toContainText(first);
  // A key that may only read sees the names and no button that changes them.
  const reader = await console.other();
  await reader.open("images", (await console.newKey({ read_only: true })).secret);
  await expect(reader.page.locator(".images .row", { hasText: first })).toBeVisible();
  await expect(reader.page.locator('[data-alias="node:22-slim"]')).toBeVisible();
  await expect(reader.button(/name|New sandbox/)).toHaveCount(0);
  await console.button(`Remove the name ${first}`).click();
  await dialog.getByRole("button", { name: "Remove" }).click();
  await expect(row).toHaveCount(0);
});

test("the configured names say that they load, and why they could not", async ({ console }) => {
  const { page } = console;
  await console.open();
  let answer: () => void = () => undefined;
  const asked = new Promise<void>((wake) => (answer = wake));
  const matches = (url: URL): boolean => url.pathname === "/v1/images/aliases";
  await page.route(matches, async (route) => {
    await asked;
    await route.fulfill({ status: 503, json: { error: "storage_error", message: "the names cannot be read", hint: "look at the server's log" } });
  });
  await console.go("images");
  const names = page.getByRole("region", { name: "Configured names" });
  await expect(names.getByRole("status", { name: "Loading" })).toBeVisible();
  answer();
  await expect(names.getByRole("alert")).toContainText("the names cannot be read");
  await page.unroute(matches);
  await names.getByRole("button", { name: "Try again" }).click();
  await expect(names.getByRole("alert")).toHaveCount(0);
  await page.route(matches, (route) => route.fulfill({ json: [] }));
  await page.reload();
  await expect(names).toContainText("No names are configured");
});

// Promises: C11.
test("two snapshots are compared, and all snapshots are found on one page", async ({ console }) => {
  const { page } = console;
  await console.made();
  const take = (name: string): Promise<unknown> => console.api("POST", `/v1/sandboxes/${console.id}/snapshots`, { name: `${console.id}-${name}` });
  await console.exec("default", "cd /workspace; echo 1 >changed; echo 1 >removed");
  await take("a");
  await console.exec("default", "cd /workspace; echo two >changed; rm removed; echo 3 >added");
  await take("b");
  await console.open("snapshots");
  await page.getByLabel("Filter").fill(`${console.id}-`);
  await expect(page.locator("[data-snapshot]")).toHaveCount(2);
  await console.accessible("all snapshots");
  await console.picture("snapshots-all");
  const dialog = page.getByRole("dialog");
  const image = `${console.id}:1`;
  await page.locator(`[data-snapshot="${console.id}-b"]`).getByRole("button", { name: "Image" }).click();
  await dialog.getByLabel("Name of the image").fill(image);
  await dialog.getByRole("button", { name: "Make image" }).click();
  await dialog.getByRole("button", { name: "Show images" }).click();
  const made = page.locator(".images .row", { hasText: image });
  await expect(made).toContainText("snapshot");
  await made.getByRole("button", { name: /^Remove the name/ }).click();
  await dialog.getByRole("button", { name: "Remove" }).click();
  await expect(made).toHaveCount(0);
  await console.go(`sandboxes/${console.id}/snapshots`);
  await console.accessible("snapshots of a sandbox");
  await console.button("Compare").click();
  await page.getByRole("dialog").getByRole("button", { name: "Compare" }).click();
  for (const [path, change] of [["changed", "changed"], ["removed", "removed"], ["added", "added"]] as const) {
    await expect(page.locator(".row", { hasText: `/workspace/${path}` })).toContainText(change);
  }
  await console.picture("snapshots-compare");
  await console.accessible("comparison");
  await console.button("Swap").click();
  await expect(page.locator(".row", { hasText: "/workspace/added" })).toContainText("removed");
  for (const name of ["a", "b"]) await console.api("DELETE", `/v1/snapshots/${console.id}-${name}`);
});
