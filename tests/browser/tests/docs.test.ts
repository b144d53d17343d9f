/** The API reference at /docs: it shows every call, and can neither read a key nor send anything. */

import { expect, test } from "../kit/console.js";

test("the API reference shows the calls without a key and without a request elsewhere", async ({ console }) => {
  const { page, server } = console;
  await page.goto(`${server.url}/docs`);
  const document = (await (await fetch(`${server.url}/v1/openapi.json`)).json()) as { paths: Record<string, object> };
  const calls = Object.values(document.paths).flatMap((item) => Object.keys(item));
  // Each group is closed again: thousands of elements take long.
  await expect(page.locator(".opblock-tag").first()).toBeVisible();
  let shown = 0;
  for (const group of await page.locator(".opblock-tag").all()) {
    await group.click();
    await expect(page.locator(".opblock").first()).toBeVisible();
    shown += await page.locator(".opblock").count();
    await group.click();
    await expect(page.locator(".opblock")).toHaveCount(0);
  }
  expect(shown).toBe(calls.length);
  await page.locator(".opblock-tag", { hasText: "commands" }).click();
  const call = page.locator("#operations-commands-sandboxes_exec");
  await call.locator(".opblock-summary-control").click();
  await expect(call.getByText("in a process group of its own")).toBeVisible();
  await expect(page.getByRole("button", { name: "Try it out" })).toHaveCount(0);
  await expect(page.getByRole("button", { name: "Authorize" })).toHaveCount(0);
  await console.picture("docs");
});

test("the API reference cannot reach what the console stores, nor the API", async ({ console }) => {
  const { page, server } = console;
  await console.open();
  await page.goto(`${server.url}/docs`);
  await expect(page.locator(".opblock-tag").first()).toBeVisible();
  expect(await page.evaluate(() => origin)).toBe("null");
  const storage = await page.evaluate(() => {
    try {
      return String(sessionStorage.length + localStorage.length);
    } catch (error) {
      return (error as Error).name;
    }
  });
  expect(storage).toBe("SecurityError");
  expect(await page.evaluate(() => fetch("/health").then(String, (error: Error) => error.name))).toBe("TypeError");
  // The policy rejected only that request. The page reports it after the request has failed.
  await expect.poll(() => console.violations.some((violation) => violation.startsWith("Content Security Policy: connect-src"))).toBe(true);
  expect(console.violations.filter((violation) => !/connect/i.test(violation))).toEqual([]);
  console.violations.length = 0;
});
