/** The documentation site, opened as files: small screens, diagrams and search, without other hosts. */

import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { expect, test as base, type Page } from "@playwright/test";

/** The built site: its folder, its pages, and a page whose errors and requests to other hosts are recorded. */
interface Site {
  folder: string;
  pages: string[];
}

const test = base.extend<{ findings: string[] }, { site: Site }>({
  site: [
    async ({}, use) => {
      const folder = mkdtempSync(join(tmpdir(), `isolet-site-${process.pid}-`));
      const root = fileURLToPath(new URL("../../..", import.meta.url));
      const environment = { ...process.env, NO_MKDOCS_2_WARNING: "1" };
      const build = ["build", "--quiet", "--strict", "--site-dir", folder];
      execFileSync("target/docs/bin/mkdocs", build, { cwd: root, env: environment });
      const pages = (readdirSync(folder, { recursive: true }) as string[]).filter((path) => path.endsWith(".html")).sort();
      await use({ folder, pages });
      rmSync(folder, { recursive: true });
    },
    { scope: "worker", timeout: 180_000 },
  ],
  findings: async ({ page }, use) => {
    const findings: string[] = [];
    page.on("pageerror", (error) => findings.push(`${page.url()}: ${error.message}`));
    page.on("console", (message) => {
      if (message.type() === "error") findings.push(`${page.url()}: ${message.text()}`);
    });
    page.on("request", (request) => {
      if (!/^(file|data|blob):/.test(request.url())) findings.push(`${page.url()}: request to ${request.url()}`);
    });
    await use(findings);
  },
});

async function open(page: Page, site: Site, path: string): Promise<void> {
  await page.goto(pathToFileURL(join(site.folder, path)).href);
}

// Opens more than 70 pages: only `make test-all` runs it.
test("no page scrolls sideways on a small screen, or needs another host", { tag: "@long" }, async ({ page, site, findings }) => {
  await page.setViewportSize({ width: 360, height: 640 });
  expect(site.pages.length).toBeGreaterThan(70);
  for (const path of site.pages) {
    // Its addresses are those of a server.
    if (path === "404.html") continue;
    await open(page, site, path);
    const beyond = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    if (beyond > 0) findings.push(`${path}: ${beyond} pixels wider than the screen`);
  }
  expect(findings).toEqual([]);
});

for (const colorScheme of ["light", "dark"] as const) {
  test(`all diagrams are drawn in the ${colorScheme} theme`, async ({ page, site, findings }) => {
    await page.emulateMedia({ colorScheme });
    const withDiagrams = site.pages.filter((path) => readFileSync(join(site.folder, path), "utf8").includes('<pre class="mermaid">'));
    expect(withDiagrams.length).toBeGreaterThan(5);
    for (const path of withDiagrams) {
      await open(page, site, path);
      // The theme replaces each source by its drawing.
      await expect(page.locator("pre.mermaid")).toHaveCount(0);
      for (const diagram of await page.locator("div.mermaid").all()) {
        expect((await diagram.boundingBox())?.height, path).toBeGreaterThan(40);
      }
    }
    expect(findings).toEqual([]);
  });
}

test("the search finds a setting and an error code", async ({ page, site, findings }) => {
  for (const [words, title] of [["idempotency_mismatch", "Error codes"], ["otlp_headers_file", "Configuration"]] as const) {
    await open(page, site, "index.html");
    await page.getByPlaceholder("Search").fill(words);
    await expect(page.locator(".md-search-result__item", { hasText: title }).first()).toBeVisible();
  }
  expect(findings).toEqual([]);
});
