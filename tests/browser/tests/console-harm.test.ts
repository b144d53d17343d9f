/** Attacks on the console by tenants and by other pages. */

import { expect, MARKUP, test } from "../kit/console.js";

// Promises: C4.
test("tenant data is shown as text everywhere", async ({ console }) => {
  const { page } = console;
  await console.made({ metadata: { name: MARKUP, [MARKUP]: 1 } });
  await console.api("POST", `/v1/sandboxes/${console.id}/sessions`, { id: "named", metadata: { name: MARKUP } });
  const file = MARKUP.replaceAll("/", "");
  await console.exec("named", `cd /workspace; cat > '${file}' <<'END'\n${MARKUP}\nEND\necho '${MARKUP}'; mkdir '${file}.d'; ln -s '${MARKUP}' link`);
  await console.api("PUT", `/v1/sandboxes/${console.id}/files/page.svg`).catch(() => undefined);
  await console.exec("named", `echo '<svg xmlns="http://www.w3.org/2000/svg" onload="window.pwned=1"/>' > page.svg; echo '<html><script>window.pwned=1</script>' > page.html`);
  await console.open(`sandboxes/${console.id}`);
  await expect(page.getByText(MARKUP)).toBeVisible();
  await console.go(`sandboxes/${console.id}/details`);
  await expect(page.locator("pre", { hasText: "onerror" })).toBeVisible();
  await console.go(`sandboxes/${console.id}/commands/named`);
  await expect(page.locator(".output", { hasText: MARKUP })).toBeVisible();
  await console.go(`sandboxes/${console.id}/files`);
  const row = page.locator("th.file", { hasText: file });
  await row.getByRole("button").click();
  await expect(page.locator(".text-line").first()).toHaveText(MARKUP);
  for (const name of ["page.svg", "page.html"]) {
    await page.getByRole("button", { name, exact: true }).click();
    await expect(page.locator(".viewer h2")).toHaveText(name);
    await expect(page.locator(".text-line").first()).toContainText("window.pwned");
  }
  await console.picture("harm-files");
  // Names in URLs, errors that repeat the request, and the page of a missing sandbox.
  await console.go(`sandboxes/${encodeURIComponent(MARKUP)}`);
  await expect(page.getByText(`Sandbox ${MARKUP} does not exist`)).toBeVisible();
  await console.go(`sandboxes/${console.id}/files/${encodeURIComponent(MARKUP)}`);
  await expect(page.getByRole("alert")).toBeVisible();
  await page.keyboard.press("n");
  await page.getByLabel("Id", { exact: true }).fill(MARKUP);
  await console.button(/^Create$/).click();
  await expect(page.getByRole("dialog").getByRole("alert")).toBeVisible();
  expect(await page.locator('img[src="x"], svg[onload]').count()).toBe(0);
});

test("invisible characters in names are shown escaped", async ({ console }) => {
  const { page } = console;
  await console.made({});
  await console.exec("default", `cd /workspace; touch $'\\u202egnp.exe' $'a\\nb'; mkdir $'\\u2066d'`);
  await console.open(`sandboxes/${console.id}/files`);
  for (const name of ["\\u202egnp.exe", "a\\u000ab"]) {
    await page.getByRole("button", { name, exact: true }).click();
    await expect(page.locator(".viewer h2")).toHaveText(name);
  }
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("button", { name: "Download \\u202egnp.exe" }).click(),
  ]);
  expect(download.suggestedFilename()).toBe("_gnp.exe");
  await page.getByRole("link", { name: "\\u2066d" }).click();
  await expect(page.getByRole("navigation", { name: "Directory" })).toContainText("\\u2066d");
});

// Promises: C5.
test("another page can neither hold the console in a frame nor read it", async ({ console, world }) => {
  const { page } = console;
  const foreign = await page.context().newPage();
  await foreign.goto(`${world.pages.origin}/kit/index.html`);
  const framed = await foreign.evaluate(async (url) => {
    const frame = document.createElement("iframe");
    frame.src = url;
    const done = new Promise((load) => (frame.onload = load));
    document.body.append(frame);
    await done;
    try {
      return frame.contentDocument?.body.innerHTML ?? "another origin";
    } catch {
      return "another origin";
    }
  }, console.server.url);
  expect(framed).toBe("another origin");
  const inside = foreign.frames().find((frame) => frame !== foreign.mainFrame());
  expect(await inside?.locator("#app").count()).toBe(0);
  const read = await foreign.evaluate(async (url) => fetch(url).then((answer) => answer.text(), () => "refused"), console.server.url);
  expect(read).toBe("refused");
  await foreign.close();
});

// Promises: C5.
test("the page is served with its policy, and missing files are not served", async ({ console }) => {
  const { url } = console.server;
  const page = await fetch(url);
  expect(page.status).toBe(200);
  const policy = page.headers.get("content-security-policy") ?? "";
  for (const rule of ["default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"]) {
    expect(policy).toContain(rule);
  }
  expect(policy).not.toContain("unsafe");
  expect(page.headers.get("x-frame-options")).toBe("DENY");
  expect(page.headers.get("referrer-policy")).toBe("no-referrer");
  const html = await page.text();
  expect(html).not.toMatch(/<script(?![^>]*\ssrc=)[^>]*>|<style|\sstyle=|\son\w+=/);
  const files = [...html.matchAll(/(?:src|href)="([^"]+)"/g)].map((found) => found[1]!);
  expect(files.length).toBeGreaterThan(1);
  for (const file of files) {
    expect(file).toMatch(/^\/assets\//);
    const answer = await fetch(url + file);
    expect(answer.status).toBe(200);
    expect(answer.headers.get("cache-control")).toContain("immutable");
    expect(answer.headers.get("x-content-type-options")).toBe("nosniff");
  }
  for (const path of ["/assets/none.js", "/assets/..%2findex.html", "/assets/%2e%2e/index.html", "/index.html", "/console"]) {
    expect((await fetch(url + path)).status, path).toBeGreaterThanOrEqual(400);
  }
  expect((await fetch(url, { method: "POST" })).status).toBe(405);
  expect((await fetch(url, { method: "HEAD" })).status).toBe(200);
  expect((await fetch(`${url}/v1/nothing`, { headers: console.server.headers })).headers.get("content-type")).toContain("json");
});
