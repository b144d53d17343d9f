/** Runs Debian's Chromium; each worker starts its own server. */

import { fileURLToPath } from "node:url";
import { defineConfig } from "@playwright/test";

const artifacts = fileURLToPath(new URL("../../target/artifacts/browser", import.meta.url));

const junit = process.env["ISOLET_JUNIT"];

export default defineConfig({
  testDir: "tests",
  testMatch: "*.test.ts",
  outputDir: artifacts,
  workers: 2,
  fullyParallel: true,
  // For tests that hang: a busy machine takes several times as long.
  timeout: 150_000,
  globalTimeout: 28 * 60_000,
  expect: { timeout: 40_000 },
  // The runner of all tests says where it reads the results.
  reporter: [["list"], ["./kit/count.ts"], ...(junit === undefined ? [] : [["junit", { outputFile: junit }] as const])],
  forbidOnly: Boolean(process.env["CI"]),
  use: {
    browserName: "chromium",
    viewport: { width: 1600, height: 1000 },
    screenshot: "only-on-failure",
    launchOptions: {
      executablePath: process.env["ISOLET_CHROMIUM"] ?? "/usr/bin/chromium",
      // Chromium's sandbox does not start as root, and all loaded pages are ours.
      args: ["--no-sandbox", "--disable-dev-shm-usage"],
    },
  },
});
