/** Chromium as Debian ships it, and real servers: each worker starts its own. */

import { fileURLToPath } from "node:url";
import { defineConfig } from "@playwright/test";

const artifacts = fileURLToPath(new URL("../../target/artifacts/browser", import.meta.url));

export default defineConfig({
  testDir: "tests",
  testMatch: "*.test.ts",
  outputDir: artifacts,
  workers: 2,
  fullyParallel: true,
  timeout: 60_000,
  // On CI a test may fail once, and is then listed as flaky; for people no test is repeated.
  retries: process.env["CI"] ? 1 : 0,
  globalTimeout: 12 * 60_000,
  expect: { timeout: 15_000 },
  reporter: [["list"], ["./kit/count.ts"]],
  forbidOnly: Boolean(process.env["CI"]),
  use: {
    browserName: "chromium",
    viewport: { width: 1600, height: 1000 },
    screenshot: "only-on-failure",
    launchOptions: {
      executablePath: process.env["ISOLET_CHROMIUM"] ?? "/usr/bin/chromium",
      // Chromium's own sandbox does not start as root, and what it loads here is ours.
      args: ["--no-sandbox", "--disable-dev-shm-usage"],
    },
  },
});
