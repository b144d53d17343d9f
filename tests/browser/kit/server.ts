/** A real server with its own port and data. */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { setTimeout as pause } from "node:timers/promises";
import { freePort } from "../../../sdk/typescript/test/port.js";

const beside = fileURLToPath(new URL("../../../target/programs", import.meta.url));

export class Server {
  readonly key = "test-key-of-the-browser";
  readonly #folder = mkdtempSync(join(tmpdir(), `isolet-browser-${process.pid}-`));
  #process: ChildProcess | undefined;

  private constructor(
    readonly port: number,
    private readonly origins: string[],
    registries: string[],
  ) {
    writeFileSync(join(this.#folder, "isolet.toml"), `[images]\nregistries = ${JSON.stringify(registries)}\n`);
  }

  /** Start a server. Pages of `origins` may call it, and it pulls images from `registries`. */
  static async start(origins: string[], registries: string[] = []): Promise<Server> {
    const server = new Server(await freePort("browser"), origins, registries);
    await server.up();
    return server;
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  get headers(): Record<string, string> {
    return { authorization: `Bearer ${this.key}` };
  }

  /** Start the server, or restart it with the same data. */
  async up(): Promise<void> {
    this.#process = spawn(join(process.env["ISOLET_PROGRAMS"] ?? beside, "isolet"), ["serve", "--config", join(this.#folder, "isolet.toml")], {
      stdio: ["ignore", "ignore", "inherit"],
      env: {
        PATH: process.env["PATH"],
        ISOLET_API_KEY: this.key,
        ISOLET_DATA_DIR: join(this.#folder, "data"),
        ISOLET_LISTEN: `127.0.0.1:${this.port}`,
        // Any port, since tests put proxies in front of the server.
        ISOLET_HOSTS: "127.0.0.1",
        ISOLET_ORIGINS: this.origins.join(","),
        // Chromium resolves its subdomains to loopback without DNS.
        ISOLET_PORTS_DOMAIN: "localhost",
        ISOLET_WARM_POOL_SIZE: "0",
        RUST_LOG: "warn",
      },
    });
    for (let tries = 0; ; tries++) {
      const health = await fetch(`${this.url}/health`).catch(() => undefined);
      if (health?.ok) return;
      if (tries > 1200 || this.#process.exitCode !== null) throw new Error("the server did not start");
      await pause(50);
    }
  }

  /** Kill the server with SIGKILL. Its sandboxes keep running. */
  async kill(): Promise<void> {
    const ended = once(this.#process!, "exit");
    this.#process!.kill("SIGKILL");
    await ended;
  }

  /** Call the API; fails on error responses. */
  async json<T>(method: string, path: string, body?: unknown): Promise<T> {
    const init: RequestInit = { method, headers: { ...this.headers, "content-type": "application/json" } };
    if (body !== undefined) init.body = JSON.stringify(body);
    const response = await fetch(this.url + path, init);
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
    return (response.status === 204 ? undefined : await response.json()) as T;
  }

  /** Delete all sandboxes and stop the server. */
  async stop(): Promise<void> {
    for (const { id } of await this.json<{ id: string }[]>("GET", "/v1/sandboxes?limit=1000")) {
      await fetch(`${this.url}/v1/sandboxes/${id}`, { method: "DELETE", headers: this.headers });
    }
    const ended = once(this.#process!, "exit");
    this.#process!.kill("SIGTERM");
    await ended;
    rmSync(this.#folder, { recursive: true, force: true });
  }
}
