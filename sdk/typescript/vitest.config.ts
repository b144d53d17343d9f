import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    globalSetup: "test/server.ts",
    testTimeout: 30_000,
    hookTimeout: 60_000,
    // In CI a test may fail once and is then listed as flaky; locally no test is retried.
    retry: process.env["CI"] ? 1 : 0,
    reporters: ["default", "./test/flaky.ts"],
  },
});
