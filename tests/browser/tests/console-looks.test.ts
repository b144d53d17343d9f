/** The console by keyboard only, and in all window sizes. Screenshots are for review by a person. */

import { expect, test } from "../kit/console.js";

// Promises: C6.
test("everything is reached by keyboard", async ({ console }) => {
  const { page } = console;
  const press = async (...keys: string[]): Promise<void> => {
    for (const key of keys) await page.keyboard.press(key);
  };
  // Wait for the dialog: keys pressed before it is rendered would reach the page below.
  const asks = async (): Promise<void> => void (await expect(page.locator("dialog input").first()).toBeFocused());
  await console.open();
  await press("?");
  await expect(page.getByRole("heading", { name: "Keyboard shortcuts" })).toBeVisible();
  await console.picture("keys");
  await press("Escape", "n");
  await asks();
  await page.keyboard.type(console.id);
  await press("Enter");
  await expect(page.getByRole("tab", { name: "default" })).toBeVisible();
  await expect(page.locator(".xterm-helper-textarea")).toBeFocused();
  await press("Control+Shift+L");
  await expect(page.getByRole("tab", { name: "default" })).toBeFocused();
  await press("g", "f");
  await expect(page.getByRole("tab", { name: "Files" })).toHaveAttribute("aria-selected", "true");
  await press("g", "c");
  await expect(page.getByLabel("Run a command in this shell")).toBeVisible();
  await press("g", "s");
  const row = page.locator(`[data-sandbox="${console.id}"]`);
  await press("/");
  await expect(page.locator("#main input").first()).toBeFocused();
  await page.keyboard.type(console.id);
  await press("Enter");
  await expect(row.locator("a.to")).toBeFocused();
  await press("Enter");
  await expect(page.getByRole("heading", { name: console.id })).toBeVisible();
  await press("Control+k");
  await asks();
  await page.keyboard.type("destroy");
  await press("Enter");
  await expect(page.getByRole("heading", { name: "Destroy sandbox" })).toBeVisible();
  await asks();
  await page.keyboard.type(console.id);
  await press("Enter");
  await expect(page.getByRole("heading", { name: /Sandboxes/ })).toBeVisible();
  await press("g", "h");
  await expect(page.locator("#health")).toBeFocused();
  // Every control has a name, and the focused element is outlined. Names are read in one call, since the page
  // renders again while the test runs.
  const names = await page.locator("button:visible, a:visible, input:visible").evaluateAll((controls) =>
    controls.map((one) => one.ariaLabel || (one as HTMLElement).innerText || (one as HTMLInputElement).labels?.[0]?.textContent || ""),
  );
  expect(names.length).toBeGreaterThan(5);
  expect(names.map((name) => name.trim())).not.toContain("");
  await press("Tab");
  const outline = await page.evaluate(() => getComputedStyle(document.activeElement!).outlineStyle);
  expect(outline).toBe("solid");
});

/** A key was lost if it arrived before the page had rendered the effect of the previous key. */
test("keys that are pressed without a pause all count", async ({ console }) => {
  const { page } = console;
  await console.made();
  await console.open(`sandboxes/${console.id}`);
  await expect(page.getByRole("heading", { name: console.id })).toBeVisible();
  // Without a frame or a task between the keys: faster than any user, and the same on every machine.
  const focused = (keys: string[], ctrlKey = false): Promise<string> =>
    page.evaluate(
      async ([keys, ctrlKey]) => {
        for (const key of keys) {
          document.activeElement!.dispatchEvent(new KeyboardEvent("keydown", { key, ctrlKey, bubbles: true, cancelable: true }));
          for (let turn = 0; turn < 20; turn++) await Promise.resolve();
        }
        return document.activeElement!.getAttribute("placeholder") ?? document.activeElement!.tagName;
      },
      [keys, ctrlKey] as const,
    );
  expect(await focused(["g", "s", "/"])).toBe("Filter by id, state or image");
  await page.keyboard.press("Escape");
  expect(await focused(["k"], true)).toBe("Search sandboxes and commands …");
  await page.keyboard.press("Escape");
  expect(await focused(["n"])).toBe("generated if empty");
});

const SIZES = { phone: [360, 740], laptop: [1280, 800], wall: [3840, 2160] } as const;

// Looks at each page six times: only `make test-all` runs it.
// Promises: C6.
test("in every size and theme nothing overflows, and text is readable", { tag: "@long" }, async ({ console }) => {
  test.slow();
  const { page } = console;
  await console.made({ metadata: { owner: "ci" }, env: { GREETING: "hello", TOKEN: "secret" } });
  await console.exec("dev", "mkdir -p src docs; seq 1 60 | sed 's/^/let line = /' > src/main.rs");
  await console.exec("dev", "git --version; ls -la /");
  await console.exec("dev", "cat nothing; (exit 3)");
  const more = ["build-agent-with-a-long-name-that-goes-on-and-on-0042", "nightly", "web"];
  for (const id of more) await console.api("POST", "/v1/sandboxes", { id }).catch(() => undefined);
  await console.api("POST", "/v1/sandboxes/nightly/sleep").catch(() => undefined);
  await console.open();
  await console.api("POST", `/v1/sandboxes/${console.id}/processes`, { id: "daemon", command: "echo a line; exec sleep 600" });
  await console.api("POST", `/v1/sandboxes/${console.id}/links`, { port: 8000, name: "preview" });
  await console.api("POST", `/v1/sandboxes/${console.id}/snapshots`, { name: `${console.id}-point` });
  const tabs = ["sessions", "processes", "ports", "network", "snapshots", "details"].map((tab) => [tab, `sandboxes/${console.id}/${tab}`] as const);
  const pages = ["images", "snapshots", "events", "audit", "keys"].map((page) => [`all-${page}`, page] as const);
  const places: Record<string, string> = {
    list: "sandboxes",
    ...Object.fromEntries([...tabs, ...pages]),
    commands: `sandboxes/${console.id}/commands/dev`,
    log: `sandboxes/${console.id}/processes/daemon`,
    files: `sandboxes/${console.id}/files/workspace/src`,
    terminal: `sandboxes/${console.id}/terminal/dev`,
    missing: "sandboxes/not-there",
  };
  for (const scheme of ["light", "dark"] as const) {
    await page.emulateMedia({ colorScheme: scheme, reducedMotion: "reduce" });
    for (const [size, [width, height]] of Object.entries(SIZES)) {
      // Wall-size screenshots are large, and their dark theme equals that of the laptop.
      if (size === "wall" && scheme === "dark") continue;
      await page.setViewportSize({ width, height });
      for (const [name, place] of Object.entries(places)) {
        await console.go(place);
        await expect(page.locator(".loading")).toHaveCount(0);
        if (name === "files") await page.getByRole("button", { name: "main.rs", exact: true }).click();
        if (name === "terminal") {
          await expect(page.locator(".handle.live")).toBeVisible();
          if (scheme === "light" && size === "phone") await console.type("ls --color -la /; git --version");
        }
        if (name === "commands") await expect(page.locator(".command").first()).toBeVisible();
        if (name === "sessions") await expect(page.locator(".row").first()).toBeVisible();
        const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        expect(over, `${name} at ${width} px`).toBeLessThanOrEqual(0);
        const letters = await page.evaluate(() => parseFloat(getComputedStyle(document.body).fontSize));
        expect(letters).toBeGreaterThanOrEqual(13);
        await console.picture(`${name}-${size}-${scheme}`);
        // The rules concern colours and markup: two of the combinations show all of both.
        if ((size === "phone" && scheme === "light") || (size === "laptop" && scheme === "dark")) await console.accessible(`${name}, ${size}, ${scheme}`);
      }
    }
  }
  for (const id of more) await fetch(`${console.server.url}/v1/sandboxes/${id}`, { method: "DELETE", headers: console.server.headers });
});

test("empty, loading and error states are shown", async ({ console }) => {
  const { page } = console;
  for (const { id } of await console.api<{ id: string }[]>("GET", "/v1/sandboxes?limit=1000")) {
    // Another test's sandbox may be going already.
    await fetch(`${console.server.url}/v1/sandboxes/${id}`, { method: "DELETE", headers: console.server.headers });
  }
  await console.open();
  await expect(page.getByText("No sandboxes yet")).toBeVisible();
  await console.picture("list-empty");
  await console.button("New sandbox").last().click();
  await console.picture("create");
  await page.keyboard.press("Escape");
  await page.keyboard.press("Control+k");
  await console.picture("palette");
  await page.keyboard.press("Escape");
  // A dialog leaves the browser's history a moment after it has closed, and would cancel the reload.
  await expect.poll(() => page.evaluate((): unknown => history.state)).toBeNull();
  await page.route("**/v1/sandboxes?*", (route) => route.fulfill({ status: 503, json: { error: "storage_error", message: "the records cannot be read", hint: "look at the server's log" } }));
  await page.reload();
  await expect(page.getByRole("alert")).toContainText("the records cannot be read");
  await console.picture("list-wrong");
});

test("every page shows that it loads, and why it could not", async ({ console }) => {
  const { page } = console;
  await console.made();
  await console.open();
  const pages = {
    images: "/v1/images",
    snapshots: "/v1/snapshots",
    audit: "/v1/audit",
    keys: "/v1/keys",
    ...Object.fromEntries(["processes", "ports", "network"].map((tab) => [`sandboxes/${console.id}/${tab}`, `/v1/sandboxes/${console.id}/${tab}`])),
    [`sandboxes/${console.id}/snapshots`]: "/v1/snapshots",
  };
  for (const [place, path] of Object.entries(pages)) {
    await console.go("sandboxes");
    let answer: () => void = () => undefined;
    const asked = new Promise<void>((wake) => (answer = wake));
    const matches = (url: URL): boolean => url.pathname === path;
    await page.route(matches, async (route) => {
      await asked;
      await route.fulfill({ status: 503, json: { error: "storage_error", message: "the records cannot be read", hint: "look at the server's log" } });
    });
    await console.go(place);
    await expect(page.getByRole("status", { name: "Loading" }).first(), place).toBeVisible();
    answer();
    const alert = page.getByRole("alert").filter({ hasText: "the records cannot be read" });
    await expect(alert, place).toBeVisible();
    await page.unroute(matches);
    await alert.getByRole("button", { name: "Try again" }).click();
    await expect(alert, place).toHaveCount(0);
    await expect(page.locator(".loading"), place).toHaveCount(0);
  }
});
