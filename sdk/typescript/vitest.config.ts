import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    globalSetup: "test/server.ts",
    testTimeout: 30_000,
    hookTimeout: 60_000,
    // A machine that is shared: a test may fail once for its neighbours' load.
    retry: process.env["CI"] ? 1 : 0,
  },
});
