/**
 * Types into a sandbox's terminal, detaches, and attaches again with its state intact.
 *
 * Set ISOLET_URL and ISOLET_API_KEY, then run: `node examples/terminal.mjs`.
 */

import { getSandbox, Isolet } from "@isolet/sdk";

const sandbox = getSandbox(new Isolet(), `example-${Date.now()}`);
try {
  const first = sandbox.terminal({ cols: 100, rows: 30, name: "first" });
  first.on("state", (state) => console.log(`first: ${state}`));
  first.write("answer=$((6 * 7)); stty size\n");
  await first.waitFor("30 100");
  first.close();

  // The terminal keeps running without clients.
  const second = sandbox.terminal({ cols: 100, rows: 30, name: "second" });
  second.write("echo the answer is $answer\n");
  const shown = await second.waitFor(/the answer is \d+/);
  console.log(shown.slice(shown.lastIndexOf("the answer")));

  second.write("exit 3\n");
  console.log("exited with", (await second.exited()).code);
} finally {
  await sandbox.destroy();
}
