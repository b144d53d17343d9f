/** The console: signing in, creating, viewing and destroying sandboxes. */

import { expect, test } from "../kit/console.js";

// Promises: C1.
test("the printed address opens the console, and the key leaves the address bar", async ({ console }) => {
  const { page, server } = console;
  await page.goto(`${server.url}/#key=${server.key}`);
  await expect(page.getByRole("heading", { name: /Sandboxes/ })).toBeVisible();
  expect(page.url()).toBe(`${server.url}/`);
  expect(await page.evaluate(() => [sessionStorage.length, localStorage.length])).toEqual([1, 0]);
  await page.reload();
  await expect(page.locator(".health.good")).toBeVisible();
  await console.button("Sign out").click();
  await expect(page.getByLabel("API key")).toBeVisible();
  expect(await page.evaluate(() => sessionStorage.length + localStorage.length)).toBe(0);
});

// Promises: C1.
test("a wrong key is rejected with a hint, and a right one is stored if the user wants that", async ({ console }) => {
  const { page, server } = console;
  await page.goto(server.url);
  await expect(page.getByText("/var/lib/isolet/key")).toBeVisible();
  await expect(page.getByLabel("API key")).toBeFocused();
  await console.picture("login");
  await page.keyboard.type("wrong");
  await page.keyboard.press("Enter");
  await expect(page.getByRole("alert")).toContainText("is not valid for this server");
  await console.picture("login-wrong");
  await page.getByLabel("API key").fill(server.key);
  await page.getByLabel("Remember the key on this device").check();
  await console.button("Sign in").click();
  await expect(page.locator(".health.good")).toBeVisible();
  const next = await page.context().newPage();
  await next.goto(server.url);
  await expect(next.locator(".health.good")).toBeVisible();
  await next.close();
});

// Promises: C1.
test("a key that is no longer valid leads back to the login page", async ({ console }) => {
  const { page, server } = console;
  await page.goto(`${server.url}/#key=of-yesterday`);
  await expect(page.getByRole("alert")).toContainText("is not valid for this server");
  await expect(page.getByLabel("API key")).toBeVisible();
});

// An address with a key of another tenant signed the console over, silently: what the user typed next
// belonged to that tenant.
// Promises: C1.
test("an address with another key replaces the key in use only if the user agrees", async ({ console }) => {
  const { page, server } = console;
  await console.open();
  const other = await console.newKey({ read_only: true });
  const used = (): Promise<string | null> => page.evaluate(() => sessionStorage.getItem("isolet.key"));
  for (const open of [
    (url: string) => page.goto(url),
    async (url: string) => {
      await page.goto("about:blank");
      await page.goto(url);
    },
  ]) {
    await open(`${server.url}/#key=${other.secret}`);
    const dialog = page.getByRole("dialog");
    await expect(dialog).toContainText("for the tenant default");
    await console.accessible("the question about another key");
    expect(page.url()).not.toContain(other.secret);
    expect(await used()).toBe(server.key);
    await console.button("Cancel").click();
    await expect(dialog).toBeHidden();
    expect(await used()).toBe(server.key);
    await page.reload();
    await expect(page.locator(".health.good")).toBeVisible();
    await expect(dialog).toBeHidden();
    expect(await used()).toBe(server.key);
  }
  // The own key asks nothing.
  await page.goto(`${server.url}/#key=${server.key}`);
  await expect(page.locator(".health.good")).toBeVisible();
  await expect(page.getByRole("dialog")).toBeHidden();
  await page.goto(`${server.url}/#key=${other.secret}`);
  await console.button("Use the other key").click();
  await expect.poll(used).toBe(other.secret);
  await expect(page.locator(".health.good")).toBeVisible();
});

// Promises: C2.
test("sandboxes are made, come and go as they do on the server, and are found by a few letters", async ({ console }) => {
  const { page } = console;
  await console.open();
  await page.keyboard.press("n");
  await page.getByLabel("Id", { exact: true }).fill("../no");
  await console.button("Create").first().click();
  await expect(page.getByRole("dialog").getByRole("alert")).toBeVisible();
  await page.getByLabel("Id", { exact: true }).fill(console.id);
  await page.getByLabel("Sleep after").fill("1h");
  await console.button(/^Create$/).click();
  await expect(page.getByRole("heading", { name: console.id })).toBeVisible();
  const made = await console.api<{ sleep_after_s: number }>("GET", `/v1/sandboxes/${console.id}`);
  expect(made.sleep_after_s).toBe(3600);
  await page.keyboard.press("g");
  await page.keyboard.press("s");
  const row = page.locator(`[data-sandbox="${console.id}"]`);
  await expect(row.locator(".state")).toHaveText("running");
  await expect(row.locator(".cell-memory")).toContainText("GiB");
  await page.keyboard.press("/");
  await page.keyboard.type("no such sandbox");
  await expect(page.getByText("No matches for")).toBeVisible();
  await page.getByLabel("Filter").fill(console.id.slice(-5));
  await expect(row).toBeVisible();
  await console.api("POST", `/v1/sandboxes/${console.id}/sleep`);
  await expect(row.locator(".state")).toHaveText("sleeping");
  await row.getByRole("button", { name: /Wake/ }).click();
  await expect(row.locator(".state")).toHaveText("running");
  await console.api("DELETE", `/v1/sandboxes/${console.id}`);
  await expect(row).toHaveCount(0);
});

// Promises: C3.
test("a sandbox is destroyed when its name was typed, and not before", async ({ console }) => {
  const { page } = console;
  await console.made();
  await console.open(`sandboxes/${console.id}/details`);
  await console.button("Destroy").click();
  const dialog = page.getByRole("dialog");
  const act = dialog.getByRole("button", { name: "Destroy" });
  await expect(act).toBeDisabled();
  await page.keyboard.type(console.id.slice(0, -1));
  await page.keyboard.press("Enter");
  await expect(act).toBeDisabled();
  await console.picture("destroy");
  await page.keyboard.type(console.id.slice(-1));
  await page.keyboard.press("Enter");
  await expect(page.getByRole("heading", { name: /Sandboxes/ })).toBeVisible();
  await expect(page.locator(`[data-sandbox="${console.id}"]`)).toHaveCount(0);
  const gone = await fetch(`${console.server.url}/v1/sandboxes/${console.id}`, { headers: console.server.headers });
  expect(gone.status).toBe(404);
});

// Promises: S13, C2.
test("the commands of all clients of a shell are shown as they run", async ({ console }) => {
  const { page } = console;
  await console.made();
  await console.exec("dev", "echo before");
  await console.open(`sandboxes/${console.id}/commands/dev`);
  await expect(page.locator(".command", { hasText: "echo before" }).locator(".code")).toHaveText("0");
  const running = console.exec("dev", "echo from elsewhere; until [ -e /tmp/go ]; do sleep 0.05; done; (exit 7)");
  const theirs = page.locator(".command", { hasText: "echo from elsewhere" });
  await expect(theirs.locator(".spin")).toBeVisible();
  await expect(theirs.locator(".output")).toContainText("from elsewhere");
  await console.exec("other", "touch /tmp/go");
  await running;
  await expect(theirs.locator(".code")).toHaveText("7");
  await page.getByLabel("Run a command in this shell").fill("echo mine; echo wrong >&2; sleep 60");
  await page.keyboard.press("Enter");
  const mine = page.locator(".command", { hasText: "echo mine" });
  await expect(mine.locator(".output")).toContainText("mine");
  await expect(mine.locator(".err")).toHaveText("wrong\n");
  await mine.getByRole("button", { name: "Cancel" }).click();
  await expect(mine).toContainText("cancelled");
  await expect(mine.locator(".code")).toHaveText("130");
  await console.picture("commands");
});

// Promises: C7.
test("files are uploaded, downloaded, viewed, renamed and deleted", async ({ console }) => {
  const { page } = console;
  await console.made();
  await console.exec("dev", "mkdir -p src .hidden; printf 'one\\ntwo\\n' > src/lines.txt; ln -s src/lines.txt .to-lines; ln -s src .to-src");
  await console.open(`sandboxes/${console.id}/files`);
  await expect(page.locator(".row")).toHaveCount(1);
  await page.getByRole("link", { name: "src" }).click();
  await page.getByRole("button", { name: "lines.txt", exact: true }).click();
  await expect(page.locator(".text-line")).toHaveCount(2);
  await page.getByRole("link", { name: "workspace" }).click();
  const png = Buffer.from(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==",
    "base64",
  );
  const big = Buffer.alloc(3_000_000, "x");
  await page.locator('input[type="file"]').setInputFiles([
    { name: "dot.png", mimeType: "image/png", buffer: png },
    { name: "big name ü.bin", mimeType: "application/octet-stream", buffer: big },
  ]);
  await expect(page.getByRole("button", { name: "dot.png", exact: true })).toBeVisible();
  await expect(page.locator(".row", { hasText: "big name ü.bin" })).toContainText("2.9 MiB");
  await page.getByRole("button", { name: "dot.png", exact: true }).click();
  await expect(page.locator(".viewer img")).toHaveJSProperty("naturalWidth", 1);
  expect(await page.locator(".viewer img").getAttribute("src")).toMatch(/^blob:/);
  await console.picture("files");
  const coming = page.waitForEvent("download");
  await console.button("Download big name ü.bin").click();
  const path = await (await coming).path();
  const { readFileSync } = await import("node:fs");
  expect(readFileSync(path).equals(big)).toBe(true);
  await page.keyboard.press("Escape");
  await console.button("Rename dot.png").click();
  await page.getByLabel("New name").fill("point.png");
  await page.keyboard.press("Enter");
  await expect(page.getByRole("button", { name: "point.png", exact: true })).toBeVisible();
  await console.button("New folder").click();
  await page.getByLabel(/Name in/).fill("docs/more");
  await page.keyboard.press("Enter");
  await page.getByRole("link", { name: "docs" }).click();
  await expect(page.getByRole("link", { name: "more" })).toBeVisible();
  await page.goBack();
  await console.button("Delete docs").click();
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await expect(page.getByRole("link", { name: "docs" })).toHaveCount(0);
  await page.getByLabel("Hidden files").check();
  await expect(page.getByRole("link", { name: ".hidden" })).toBeVisible();
  await page.getByRole("button", { name: /^\.to-lines/ }).click();
  await expect(page.locator(".text-line")).toHaveCount(2);
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: /^\.to-src/ }).click();
  await expect(page.getByRole("button", { name: "lines.txt", exact: true })).toBeVisible();
});

// Promises: C7.
test("files that are dropped on the list are uploaded", async ({ console }) => {
  const { page } = console;
  await console.made();
  await console.open(`sandboxes/${console.id}/files`);
  await expect(page.getByText("This directory is empty")).toBeVisible();
  await console.picture("files-empty");
  const transfer = await page.evaluateHandle(() => {
    const transfer = new DataTransfer();
    transfer.items.add(new File(["dropped"], "dropped.txt", { type: "text/plain" }));
    return transfer;
  });
  await page.locator(".tab > .files").dispatchEvent("drop", { dataTransfer: transfer });
  await expect(page.getByRole("button", { name: "dropped.txt", exact: true })).toBeVisible();
  const text = await fetch(`${console.server.url}/v1/sandboxes/${console.id}/files/dropped.txt`, {
    headers: console.server.headers,
  });
  expect(await text.text()).toBe("dropped");
});

// Promises: C2.
test("a banner reports a killed server, and the page updates again when it is back", async ({ console }) => {
  const { page, server } = console;
  await console.made();
  await console.open();
  await server.kill();
  await expect(page.getByText("The server is not responding.")).toBeVisible();
  await expect(page.locator(".health")).toHaveText(/not reachable/);
  await console.picture("server-lost");
  await server.up();
  await expect(page.locator(".health.good")).toBeVisible();
  await expect(page.getByText("The server is not responding.")).toHaveCount(0);
  await console.api("POST", `/v1/sandboxes/${console.id}/sleep`);
  await expect(page.locator(`[data-sandbox="${console.id}"] .state`)).toHaveText("sleeping");
});
