/**
 * Starts a web server in a sandbox, waits until it answers, sends it a request, and creates a link to it.
 *
 * Set ISOLET_URL and ISOLET_API_KEY, then run: `node examples/server.mjs`.
 */

import { getSandbox, Isolet } from "@isolet/sdk";

const sandbox = getSandbox(new Isolet(), `example-${Date.now()}`);
try {
  await sandbox.writeFile("index.html", "<h1>here</h1>");
  const server = await sandbox.startProcess("python3 -u -m http.server --bind 127.0.0.1 8000", {
    processId: "web",
  });
  await server.waitForPort(8000, { path: "/", timeout: 30_000 });
  const answer = await sandbox.fetchPort(8000, "/index.html");
  console.log(answer.status, await answer.text());

  const link = await sandbox.exposePort(8000, { name: "web", ttlSeconds: 600 });
  console.log("without a key:", (await fetch(`${link.url}index.html`)).status);

  const { line } = await server.waitForLog(/"GET \/index.html/);
  console.log("log:", line.slice(line.indexOf('"')));
  await server.kill();
  console.log("status:", await server.getStatus());
} finally {
  await sandbox.destroy();
}
