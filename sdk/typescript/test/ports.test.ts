/** Ports: listing, links, requests and TCP connections. */

import { randomUUID } from "node:crypto";
import { afterAll, expect, test } from "vitest";
import { getSandbox, Isolet, type Sandbox } from "../src/node.js";

const client = new Isolet();
const sandbox: Sandbox = getSandbox(client, `ports-${randomUUID()}`);

afterAll(() => sandbox.destroy());

test("a port is listed, exposed by a link, requested, and unexposed", async () => {
  await sandbox.writeFile("index.html", "<h1>here");
  await sandbox.exec("setsid python3 -m http.server --bind 127.0.0.1 8000 >/dev/null 2>&1 </dev/null &");
  await expect.poll(() => sandbox.listPorts(), { timeout: 15_000 }).toMatchObject([
    { port: 8000, addresses: ["127.0.0.1"] },
  ]);
  const answer = await sandbox.fetchPort(8000, "/index.html");
  expect([answer.status, await answer.text()]).toEqual([200, "<h1>here"]);
  expect((await sandbox.fetchPort(8000, "none")).status).toBe(404);
  expect((await sandbox.fetchPort(8001, "/")).status).toBe(502);

  const token = "chosen-for-tests";
  const chosen = await sandbox.exposePort(8000, { token });
  expect(chosen.url).toContain(`~8000~${token}`);
  expect((await sandbox.exposePort(8000, { token, ttlSeconds: 60 })).url).toBe(chosen.url);
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
  await expect(sandbox.exposePort(0)).rejects.toMatchObject({ code: "bad_request" });
});

// Promises: Y14.
test("a TCP connection to a program works until either side closes", async () => {
  const echo = `
import socketserver, sys
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        size = 0
        while data := self.request.recv(65536):
            size += len(data)
            self.request.sendall(data)
        self.request.sendall(b"end of %d" % size)
socketserver.ThreadingTCPServer(("127.0.0.1", 9100), Echo).serve_forever()`;
  const program = await sandbox.startProcess(["python3", "-c", echo]);
  await program.waitForPort(9100);
  const { readable, writable } = await sandbox.connectPort(9100);
  const sent = new Uint8Array(3_000_000).map((_, at) => at % 251);
  const written = (async () => {
    const writer = writable.getWriter();
    await writer.write(sent);
    await writer.close();
  })();
  const received = new Uint8Array(await new Response(readable).arrayBuffer());
  await written;
  expect(Buffer.compare(received.subarray(0, sent.length), sent)).toBe(0);
  expect(new TextDecoder().decode(received.subarray(sent.length))).toBe("end of 3000000");

  const left = await sandbox.connectPort(9100);
  const pendingRead = left.readable.getReader().read();
  left.close();
  await expect(pendingRead).rejects.toMatchObject({ code: "closed" });
  const held = await sandbox.connectPort(9100);
  await held.writable.getWriter().write(new Uint8Array([1]));
  const reader = held.readable.getReader();
  expect((await reader.read()).value).toEqual(new Uint8Array([1]));
  await program.kill("SIGKILL");
  expect((await reader.read()).done).toBe(true);
  await expect(sandbox.connectPort(9100)).rejects.toMatchObject({ code: "not_listening" });
});
