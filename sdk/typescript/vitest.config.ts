import { defineConfig } from "vitest/config";

const junit = process.env["ISOLET_JUNIT"];

export default defineConfig({
  test: {
    globalSetup: "test/server.ts",
    // For a test that hangs: a busy machine takes several times as long.
    testTimeout: 90_000,
    hookTimeout: 60_000,
    // The runner of all tests says where it reads the results.
    reporters: ["default", ...(junit === undefined ? [] : [["junit", { outputFile: junit }] as const])],
  },
});
