/** A real server for all tests, with its own port and data. */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import { freePort } from "./port.js";

export default async function setup(): Promise<() => Promise<void>> {
  const beside = fileURLToPath(new URL("../../../target/programs", import.meta.url));
  const program = join(process.env["ISOLET_PROGRAMS"] ?? beside, "isolet");
  const folder = mkdtempSync(join(tmpdir(), `isolet-sdk-${process.pid}-`));
  const url = `http://127.0.0.1:${await freePort("sdk")}`;
  const key = "test-key-of-the-sdk";
  const server = spawn(program, ["serve"], {
    stdio: ["ignore", "ignore", "inherit"],
    env: {
      PATH: process.env["PATH"],
      ISOLET_API_KEY: key,
      ISOLET_DATA_DIR: join(folder, "data"),
      ISOLET_LISTEN: new URL(url).host,
      // Any port, since tests put proxies in front of the server.
      ISOLET_HOSTS: "127.0.0.1",
      ISOLET_WARM_POOL_SIZE: "0",
      RUST_LOG: "warn",
    },
  });
  const ended = once(server, "exit");
  const headers = { authorization: `Bearer ${key}` };
  for (let attempts = 0; ; attempts++) {
    const health = await fetch(`${url}/health`).catch(() => undefined);
    if (health?.ok) break;
    if (attempts > 1200 || server.exitCode !== null) throw new Error("the server did not start");
    await new Promise((wake) => setTimeout(wake, 50));
  }
  process.env["ISOLET_URL"] = url;
  process.env["ISOLET_API_KEY"] = key;
  return async () => {
    const all = await fetch(`${url}/v1/sandboxes?limit=1000`, { headers });
    for (const { id } of (await all.json()) as { id: string }[]) {
      await fetch(`${url}/v1/sandboxes/${id}`, { method: "DELETE", headers });
    }
    server.kill("SIGTERM");
    await ended;
    rmSync(folder, { recursive: true, force: true });
  };
}
