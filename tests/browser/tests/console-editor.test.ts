/** Editing files in the console. */

import type { Page } from "@playwright/test";
import { type Console, expect, test } from "../kit/console.js";

const editor = (page: Page) => page.locator(".editor .cm-content");

async function openFile(console: Console, name: string): Promise<void> {
  await console.open(`sandboxes/${console.id}/files`);
  await console.page.getByRole("button", { name, exact: true }).click();
  await console.button("Edit").click();
  await expect(editor(console.page)).toBeFocused();
}

const content = async (console: Console, path: string): Promise<string> =>
  (await fetch(`${console.server.url}/v1/sandboxes/${console.id}/files/${path}`, { headers: console.server.headers })).text();

// Promises: C17.
test("a file is edited and saved exactly, with its line ends", async ({ console }) => {
  const { page } = console;
  await console.made();
  await console.exec("default", `cd /workspace; printf '\\xef\\xbb\\xbfdef main():\\r\\n    pass\\r\\n' >main.py; chmod 750 main.py`);
  await openFile(console, "main.py");
  await expect(editor(page).locator("span", { hasText: /^def$/ })).toBeVisible();
  await page.keyboard.press("Control+End");
  await page.keyboard.type("# héllo <b>");
  // Shortcuts of the page do not act on what is typed, and saving is a shortcut of the editor.
  await expect(page.getByText("Not saved")).toBeVisible();
  await console.picture("editor");
  await console.accessible("editor");
  await page.keyboard.press("Control+s");
  await expect(page.locator(".editor-bar")).toContainText("Saved");
  expect(await content(console, "main.py")).toBe("def main():\r\n    pass\r\n# héllo <b>");
  const bytes = await console.exec("default", "head -c 3 main.py | od -An -tx1; stat -c %a main.py");
  expect(bytes.stdout).toBe(" ef bb bf\n750\n");
  await console.button("Close editor").click();
  await expect(page.locator(".text-line")).toHaveCount(3);
});

// Promises: C17.
test("a file that someone else changed is not overwritten without asking", async ({ console }) => {
  const { page } = console;
  await console.made();
  await console.exec("default", "echo first >/workspace/notes");
  await openFile(console, "notes");
  await page.keyboard.type("mine ");
  await console.exec("default", "echo theirs >/workspace/notes");
  await page.keyboard.press("Control+s");
  const notice = page.getByRole("alert").filter({ hasText: "changed by someone else" });
  await expect(notice).toBeVisible();
  expect(await content(console, "notes")).toBe("theirs\n");
  await console.picture("editor-conflict");
  await console.accessible("conflict");
  await notice.getByRole("button", { name: "Keep editing" }).click();
  await page.keyboard.press("Control+s");
  await notice.getByRole("button", { name: "Load the new version" }).click();
  await expect(editor(page)).toHaveText("theirs");
  await editor(page).click();
  await page.keyboard.press("Control+Home");
  await page.keyboard.type("again ");
  await console.exec("default", "echo theirs once more >/workspace/notes");
  await console.button("Save").click();
  await notice.getByRole("button", { name: "Overwrite" }).click();
  await expect(page.locator(".editor-bar")).toContainText("Saved");
  expect(await content(console, "notes")).toBe("again theirs\n");
});

// Promises: C17.
test("a change that arrives while a file is being saved is not overwritten", async ({ console }) => {
  const { page } = console;
  await console.made();
  await console.exec("default", "echo first >/workspace/notes");
  await openFile(console, "notes");
  await page.keyboard.type("mine ");
  // The change comes after everything that the page could have compared before its write.
  await page.route("**/files/**", async (route) => {
    if (route.request().method() === "PUT") await console.exec("default", "echo theirs >/workspace/notes");
    await route.continue();
  });
  await page.keyboard.press("Control+s");
  await expect(page.getByRole("alert").filter({ hasText: "changed by someone else" })).toBeVisible();
  expect(await content(console, "notes")).toBe("theirs\n");
});

// Promises: C17.
test("text that was not saved survives a look at another page", async ({ console }) => {
  const { page } = console;
  await console.made();
  await console.open(`sandboxes/${console.id}/files`);
  await console.button("New file").click();
  await page.getByLabel(/Name in/).fill("draft.txt");
  await page.keyboard.press("Enter");
  await console.button("Edit").click();
  await expect(editor(page)).toBeFocused();
  await page.keyboard.type("unsaved");
  await page.getByRole("tab", { name: "Details" }).click();
  await page.getByRole("tab", { name: "Files" }).click();
  await page.getByRole("button", { name: "draft.txt", exact: true }).click();
  await expect(editor(page)).toHaveText("unsaved");
  await console.button("Close editor").click();
  await expect(page.getByRole("dialog")).toContainText("not saved");
  await page.getByRole("dialog").getByRole("button", { name: "Discard" }).click();
  await expect(page.locator(".editor")).toHaveCount(0);
  expect(await content(console, "draft.txt")).toBe("");
});
