/** The console in daily use: Back, new tabs, lost connections, other sizes, colours. */

import { expect, test } from "../kit/console.js";

// Promises: C18.
test("Back closes a dialog and leaves the page as it is", async ({ console }) => {
  const { page } = console;
  await console.made();
  await console.open();
  await console.go(`sandboxes/${console.id}/details`);
  await console.button("Destroy").click();
  const dialog = page.getByRole("dialog");
  await expect(dialog).toBeVisible();
  await page.goBack();
  await expect(dialog).toHaveCount(0);
  await expect(page.getByRole("tab", { name: "Details" })).toHaveAttribute("aria-selected", "true");
  // A dialog that was closed otherwise leaves no entry in the history, also when a page was opened at once.
  await page.keyboard.press("?");
  await expect(dialog).toBeVisible();
  await page.keyboard.press("Escape");
  await expect(dialog).toHaveCount(0);
  await page.keyboard.press("Control+k");
  await page.keyboard.type("keyboard");
  await page.keyboard.press("Enter");
  await expect(page.getByRole("heading", { name: "Keyboard shortcuts" })).toBeVisible();
  await page.keyboard.press("Escape");
  await page.keyboard.press("g");
  await page.keyboard.press("i");
  await expect(page.getByRole("heading", { name: /^Images/ })).toBeVisible();
  await page.goBack();
  await expect(page.getByRole("tab", { name: "Details" })).toHaveAttribute("aria-selected", "true");
  await page.goBack();
  await expect(page.getByRole("heading", { name: /^Sandboxes/ })).toBeVisible();
});

// Promises: C1, C18.
test("a link that is opened in a new tab keeps the key, and an address that is typed does not get it", async ({ console }) => {
  const { page, server } = console;
  await console.made();
  await console.open();
  const row = page.locator(`[data-sandbox="${console.id}"]`);
  const opening = page.context().waitForEvent("page");
  await row.locator("a.to").click({ modifiers: ["Control"] });
  const tab = await opening;
  await expect(tab.getByRole("heading", { name: console.id })).toBeVisible();
  expect(await tab.evaluate(() => [sessionStorage.length, localStorage.length])).toEqual([1, 0]);
  await tab.close();
  const typed = await page.context().newPage();
  await typed.goto(`${server.url}/#/sandboxes/${console.id}`);
  await expect(typed.getByLabel("API key")).toBeVisible();
  await typed.close();
});

// Promises: C8.
test("what is typed while the connection is lost is kept or visibly refused", async ({ console }) => {
  const { page, server } = console;
  await console.plain();
  await console.made();
  await console.open(`sandboxes/${console.id}/terminal`);
  await console.ready();
  await console.go(`sandboxes/${console.id}/commands`);
  const line = page.getByLabel("Run a command in this shell");
  await line.fill("echo kept $((40 + 2))");
  await server.kill();
  await expect(page.locator(".over")).toContainText("Connection lost");
  await line.press("Enter");
  await expect(page.getByRole("alert").filter({ hasText: "Your text stays here" })).toBeVisible();
  await console.picture("commands-lost");
  await console.go(`sandboxes/${console.id}/terminal/default`);
  await expect(page.locator(".over")).toContainText("Connection lost");
  await expect(page.locator(".over")).not.toContainText("not sent");
  await page.locator(".xterm-helper-textarea").focus();
  await page.keyboard.type("ls");
  await expect(page.locator(".over")).toContainText("What you type is not sent");
  await console.picture("terminal-lost-typing");
  await server.up();
  await expect(page.locator(".over")).toHaveCount(0);
  await console.go(`sandboxes/${console.id}/commands`);
  await expect(page.locator(".log")).toBeVisible();
  await line.fill("echo kept $((40 + 2))");
  await expect(console.button("Run")).toBeEnabled();
  await line.press("Enter");
  await expect(page.locator(".output").last()).toContainText("kept 42");
});

// Promises: C6.
test("text is readable on every colour of a terminal, in both themes", async ({ console }) => {
  const { page } = console;
  await console.plain();
  await console.made();
  for (const scheme of ["light", "dark"] as const) {
    await page.emulateMedia({ colorScheme: scheme });
    await console.open(`sandboxes/${console.id}/terminal/${scheme}`);
    await console.ready();
    // As full-screen programs do: the alternate screen, with each colour on each other one.
    await console.type(`clear; printf '\\e[?1049h'; for b in {40..47} {100..107}; do for f in {30..37} {90..97}; do [ $((f % 10 + f / 60 * 8)) = $((b % 10 + b / 70 * 8)) ] || printf '\\e[%d;%dmab' $f $b; done; printf '\\e[0m\\n'; done; echo do''ne; read`);
    await console.shows(/^done/m);
    await console.picture(`terminal-colours-${scheme}`);
    const worst = await page.locator(".xterm-rows span").evaluateAll((spans) => {
      const channels = (text: string): number[] => (/[\d.]+(?:, [\d.]+)*/.exec(text)?.[0] ?? "0").split(", ").map(Number);
      const light = (text: string): number => {
        const [r, g, b] = channels(text).map((part) => (part / 255 <= 0.03928 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r! + 0.7152 * g! + 0.0722 * b!;
      };
      const ratios = spans
        .filter((one) => /^(ab)+$/.test(one.textContent ?? ""))
        .map((one) => {
          const { color, backgroundColor } = getComputedStyle(one);
          const [low, high] = [light(color), light(backgroundColor)].sort((a, b) => a - b);
          return (high! + 0.05) / (low! + 0.05);
        });
      return { count: ratios.length, least: Math.min(...ratios) };
    });
    expect(worst.count).toBeGreaterThan(150);
    expect(worst.least).toBeGreaterThan(4.4);
  }
});

// Promises: C6.
test("a terminal of another size shows its last row, and nothing covers it", async ({ console }) => {
  await console.plain();
  await console.made();
  await console.open(`sandboxes/${console.id}/terminal`);
  await console.ready();
  const other = await console.other();
  await other.plain();
  await other.page.setViewportSize({ width: 360, height: 640 });
  await other.open(`sandboxes/${console.id}/terminal`);
  await other.ready();
  for (const [here, there] of [[console, other], [other, console]] as const) {
    await here.type("clear; seq 90; echo at the end");
    for (const one of [here, there]) {
      await one.shows(/^at the end/m);
      await expect(one.page.locator(".foreign")).toHaveCount(one === here ? 0 : 1);
      const within = await one.page.evaluate(() => {
        const box = (selector: string): DOMRect => document.querySelector(selector)!.getBoundingClientRect();
        const row = document.querySelector(".xterm-rows")!.lastElementChild!.getBoundingClientRect();
        const note = document.querySelector(".foreign")?.getBoundingClientRect();
        const covered = note !== undefined && note.bottom > row.top;
        return { row: row.bottom <= box(".place").bottom + 1, frame: row.bottom <= box(".bottom").top + 1, covered };
      });
      expect(within).toEqual({ row: true, frame: true, covered: false });
    }
  }
  await other.picture("terminal-other-size");
});

// Promises: C6.
test("on a phone the chosen tab is in sight", async ({ console }) => {
  const { page } = console;
  await console.made();
  await page.setViewportSize({ width: 360, height: 740 });
  await console.open();
  for (const [place, name] of [[`sandboxes/${console.id}/details`, "Details"], [`sandboxes/${console.id}/terminal/with-a-long-name`, "with-a-long-name"], [`sandboxes/${console.id}`, "Sessions"]] as const) {
    await console.go(place);
    await expect(page.getByRole("tab", { name })).toBeInViewport({ ratio: 1 });
  }
  await console.go("keys");
  await expect(page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Keys" })).toBeInViewport({ ratio: 1 });
});

// Promises: C4.
test("the output of commands has its colours, and no other escape sequences", async ({ console }) => {
  const { page } = console;
  await console.made();
  await console.exec("dev", "printf '10%%\\r50%%\\r100%%\\n'");
  await console.open(`sandboxes/${console.id}/commands/dev`);
  const output = page.locator(".output");
  await expect(output).toHaveText("100%\n");
  await expect(output.locator("span")).toHaveCount(0);
  await console.exec("dev", `printf '\\e[31mred\\e[0m \\e[1;44;37mon blue\\e[0m \\e[38;5;208morange\\e[m \\e[2Kplain\\e]0;title\\a\\n'`);
  const second = output.nth(1);
  await expect(second).toHaveText("red on blue orange plain\n");
  await expect(second.locator("span", { hasText: /^red$/ })).not.toHaveCSS("color", await second.evaluate((one) => getComputedStyle(one).color));
  await expect(second.locator("span", { hasText: /^on blue$/ })).toHaveCSS("font-weight", "700");
  await console.picture("commands-colours");
});
