/**
 * Clones a repository, searches it, and copies its directory to another sandbox as an archive. The sandbox has
 * no network, so the example clones from a repository that it creates inside.
 *
 * Set ISOLET_URL and ISOLET_API_KEY, then run: `node examples/copy.mjs`.
 */

import { getSandbox, Isolet } from "@isolet/sdk";

const client = new Isolet();
const first = getSandbox(client, `example-${Date.now()}`);
const second = getSandbox(client, `example-${Date.now()}-second`);
try {
  await first.writeFile("/srv/project/main.py", "import os\nprint('copied')  # later: more\n");
  await first.exec("cd /srv/project && git init -q -b main && git add . && git -c user.name=me -c user.email=me@localhost commit -qm first");

  const { branch, targetDir } = await first.gitCheckout("/srv/project", { targetDir: "code/project", depth: 1 });
  console.log("cloned", branch, "to", targetDir);
  for (const { path, line, text } of (await first.search("later", { path: "code" })).lines) {
    console.log(`${path}:${line}: ${text}`);
  }

  const archive = new Uint8Array(await new Response(await first.readArchive("code")).arrayBuffer());
  await first.destroy();
  await second.writeArchive(archive, "code");
  console.log((await second.exec("python3 code/project/main.py")).stdout.trim());
  for await (const { event } of client.audit({ sandbox: first.id })) {
    if (event.startsWith("sandbox.d")) console.log("first sandbox:", event);
  }
} finally {
  await Promise.all([first.destroy(), second.destroy()]);
}
