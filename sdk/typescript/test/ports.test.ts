/** Ports: listed, exposed by links, and asked. */

import { randomUUID } from "node:crypto";
import { afterAll, expect, test } from "vitest";
import { getSandbox, Isolet, type Sandbox } from "../src/index.js";

const client = new Isolet();
const sandbox: Sandbox = getSandbox(client, `ports-${randomUUID()}`);

afterAll(() => sandbox.destroy());

test("a port is listed, exposed by a link, asked, and withdrawn", async () => {
  await sandbox.writeFile("index.html", "<h1>here");
  await sandbox.exec("setsid python3 -m http.server --bind 127.0.0.1 8000 >/dev/null 2>&1 </dev/null &");
  await expect.poll(() => sandbox.listPorts(), { timeout: 15_000 }).toMatchObject([
    { port: 8000, addresses: ["127.0.0.1"] },
  ]);
  const answer = await sandbox.fetchPort(8000, "/index.html");
  expect([answer.status, await answer.text()]).toEqual([200, "<h1>here"]);
  expect((await sandbox.fetchPort(8000, "none")).status).toBe(404);
  expect((await sandbox.fetchPort(8001, "/")).status).toBe(502);

  const made = await sandbox.exposePort(8000, { name: "web", ttlSeconds: 60 });
  expect(made).toMatchObject({ port: 8000, name: "web" });
  expect(made.expiresAt.getTime()).toBeGreaterThan(Date.now());
  expect(await (await fetch(`${made.url}index.html`)).text()).toBe("<h1>here");
  await sandbox.exposePort(9000);
  expect(await sandbox.getExposedPorts()).toMatchObject([
    { port: 8000, name: "web", status: "active" },
    { port: 9000, name: undefined, status: "inactive" },
  ]);
  await sandbox.unexposePort(8000);
  expect((await fetch(made.url)).status).toBe(401);
  expect(await sandbox.getExposedPorts()).toHaveLength(1);
  await expect(sandbox.unexposePort(8000)).rejects.toMatchObject({ code: "no_link" });
  await expect(sandbox.exposePort(0)).rejects.toMatchObject({ code: "bad_field" });
});
