/** A fleet of one node: a real etcd on loopback, and a server that joins it. */

import { execFileSync, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { freePort } from "./port.js";

/** Where `make etcd` unpacks Debian's packages. */
const etcdProgram = fileURLToPath(new URL("../../../target/clients/etcd/usr/bin/etcd", import.meta.url));
const beside = fileURLToPath(new URL("../../../target/programs", import.meta.url));
const program = join(process.env["ISOLET_PROGRAMS"] ?? beside, "isolet");

export interface OneNode {
  name: string;
  url: string;
  apiKey: string;
  end: () => Promise<void>;
}

async function healthy(url: string, process: ChildProcess): Promise<void> {
  for (let attempts = 0; ; attempts++) {
    const health = await fetch(`${url}/health`).catch(() => undefined);
    if (health?.ok) return;
    if (attempts > 600 || process.exitCode !== null) throw new Error(`${url} did not start`);
    await new Promise((wake) => setTimeout(wake, 50));
  }
}

async function stopped(process: ChildProcess): Promise<void> {
  const ended = once(process, "exit");
  process.kill("SIGTERM");
  await ended;
}

/** Start etcd, and the only node of its fleet. */
export async function oneNode(): Promise<OneNode> {
  const name = "node-1";
  const folder = mkdtempSync(join(tmpdir(), `isolet-fleet-${process.pid}-`));
  const etcdUrl = `http://127.0.0.1:${await freePort("sdk")}`;
  const members = `http://127.0.0.1:${await freePort("sdk")}`;
  const etcd = spawn(
    etcdProgram,
    [
      ...["--name", "member", "--data-dir", join(folder, "etcd"), "--log-level", "error"],
      ...["--listen-client-urls", etcdUrl, "--advertise-client-urls", etcdUrl],
      ...["--listen-peer-urls", members, "--initial-advertise-peer-urls", members],
      ...["--initial-cluster", `member=${members}`, "--unsafe-no-fsync"],
    ],
    { stdio: "ignore" },
  );
  const [authority, peer] = [join(folder, "authority"), join(folder, "peer")];
  for (const words of [["init"], ["issue", name, "--out", peer]]) {
    execFileSync(program, ["cluster", ...words, "--dir", authority], { stdio: "ignore" });
  }
  await healthy(etcdUrl, etcd);
  const config = join(folder, "isolet.toml");
  const advertise = `127.0.0.1:${await freePort("sdk")}`;
  const lines = [`etcd = ["${etcdUrl}"]`, `node = "${name}"`, `advertise = "${advertise}"`, `peer_dir = "${peer}"`];
  writeFileSync(config, ["[cluster]", ...lines, ""].join("\n"));
  const url = `http://127.0.0.1:${await freePort("sdk")}`;
  const apiKey = "test-key-of-the-sdk";
  const server = spawn(program, ["serve"], {
    stdio: ["ignore", "ignore", "inherit"],
    env: {
      PATH: process.env["PATH"],
      ISOLET_API_KEY: apiKey,
      ISOLET_CONFIG: config,
      ISOLET_DATA_DIR: join(folder, "data"),
      ISOLET_LISTEN: new URL(url).host,
      ISOLET_WARM_POOL_SIZE: "0",
      RUST_LOG: "warn",
    },
  });
  await healthy(url, server);
  const headers = { authorization: `Bearer ${apiKey}` };
  for (let attempts = 0; ; attempts++) {
    const found = (await (await fetch(`${url}/v1/nodes/${name}`, { headers })).json()) as { state?: string };
    if (found.state === "ready") break;
    if (attempts > 600) throw new Error(`the node is not ready: ${JSON.stringify(found)}`);
    await new Promise((wake) => setTimeout(wake, 50));
  }
  const end = async (): Promise<void> => {
    await stopped(server);
    await stopped(etcd);
    rmSync(folder, { recursive: true, force: true });
  };
  return { name, url, apiKey, end };
}
