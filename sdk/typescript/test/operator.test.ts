/** API keys, webhooks, and nodes of a fleet. */

import { randomUUID } from "node:crypto";
import { afterAll, beforeAll, expect, test } from "vitest";
import { getSandbox, Isolet, type DrainProgress } from "../src/index.js";
import { oneNode, type OneNode } from "./fleet.js";

const client = new Isolet();
let node: OneNode;

beforeAll(async () => {
  node = await oneNode();
});

afterAll(async () => {
  await node.end();
});

test("a key is created, listed, used and revoked", async () => {
  const label = randomUUID();
  const made = await client.createKey({ label, readOnly: true, ttl: "1h" });
  expect(made).toMatchObject({ label, readOnly: true, revokedAt: undefined });
  expect(Math.abs(made.expiresAt!.getTime() - made.createdAt.getTime() - 3_600_000)).toBeLessThan(5000);
  expect((await client.listKeys()).filter((one) => one.label === label).map((one) => one.id)).toEqual([made.id]);

  const reader = new Isolet({ url: process.env["ISOLET_URL"]!, apiKey: made.secret });
  expect(await reader.currentKey()).toEqual({ id: made.id, tenant: made.tenant, readOnly: true });
  await expect(getSandbox(reader, randomUUID()).exec("true")).rejects.toMatchObject({ status: 403 });
  await client.revokeKey(made.id);
  await expect(reader.listKeys()).rejects.toMatchObject({ status: 401 });
  const revoked = (await client.listKeys()).find((one) => one.id === made.id)!;
  expect(revoked.revokedAt).toBeInstanceOf(Date);
  expect(revoked.lastUsedAt).toBeInstanceOf(Date);
  await expect(client.revokeKey("key_0000000000000000")).rejects.toMatchObject({ status: 404 });
});

test("a webhook is created, tested, changed and deleted", async () => {
  const label = randomUUID();
  const url = "https://receiver.invalid/hook";
  const made = await client.createWebhook(url, { events: ["sandbox.failed"], sandbox: "a", label });
  expect(made).toMatchObject({ url, events: ["sandbox.failed"], sandbox: "a", label, enabled: true });
  expect(made.secret).toMatch(/^whsec_/);
  expect(made.delivery).toMatchObject({ delivered: 0, failures: 0, disabled: undefined });
  expect((await client.listWebhooks()).filter((one) => one.label === label).map((one) => one.id)).toEqual([made.id]);

  const tested = await client.testWebhook(made.id);
  expect([tested.status, tested.error]).toEqual([undefined, expect.stringContaining("receiver.invalid")]);
  const changed = await client.updateWebhook(made.id, { events: ["*"], enabled: false });
  expect(changed).toMatchObject({ url, events: ["*"], enabled: false });
  expect(await client.getWebhook(made.id)).toEqual(changed);
  const rotated = await client.rotateWebhook(made.id);
  expect(rotated.secret).not.toBe(made.secret);
  expect(rotated.previousSecretUntil).toBeInstanceOf(Date);

  await expect(client.createWebhook("http://169.254.169.254/")).rejects.toMatchObject({ code: "bad_field" });
  await client.deleteWebhook(made.id);
  await expect(client.getWebhook(made.id)).rejects.toMatchObject({ status: 404, code: "no_webhook" });
});

test("a node is listed, cordoned and drained, and a refused move changes nothing", async () => {
  const fleet = new Isolet({ url: node.url, apiKey: node.apiKey });
  const sandbox = getSandbox(fleet, randomUUID(), { persistent: true });
  await sandbox.writeFile("f", "kept");
  const { here, isCurrent, nodes } = await fleet.listNodes();
  expect([here, isCurrent, nodes.map((one) => [one.name, one.cordoned])]).toEqual([node.name, true, [[node.name, false]]]);
  expect((await fleet.cordonNode(node.name)).cordoned).toBe(true);
  expect((await fleet.getNode(node.name)).cordoned).toBe(true);
  expect((await fleet.uncordonNode(node.name)).cordoned).toBe(false);
  await expect(fleet.getNode("never-was")).rejects.toMatchObject({ status: 404, code: "no_node" });

  // A move copies the files through the store, which this fleet does not have.
  await expect(sandbox.move({ node: "never-was" })).rejects.toMatchObject({ code: "no_snapshot_store" });
  const seen: DrainProgress[] = [];
  const done = await fleet.drainNode(node.name, { timeout: 30, onProgress: (progress) => void seen.push(progress) });
  expect(done).toMatchObject({ node: node.name, running: false, moved: 0, remaining: 1 });
  expect(done.left.map((one) => one.sandbox)).toEqual([`default/${sandbox.id}`]);
  expect(seen.at(-1)).toEqual(done);
  expect((await sandbox.readFile("f")).content).toBe("kept");
  await sandbox.destroy();
  await expect(client.listNodes()).rejects.toMatchObject({ code: "not_a_fleet" });
});
