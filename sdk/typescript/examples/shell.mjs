/**
 * An agent loop: small commands in one shell, each chosen from the result of the previous one. In a real agent
 * a model chooses the commands; here a generator does.
 *
 * Set ISOLET_URL and ISOLET_API_KEY, then run: `node examples/shell.mjs`.
 */

import { getSandbox, Isolet } from "@isolet/sdk";

/** Yields commands; receives each result, and stops when the task is done. */
function* agent() {
  yield "mkdir -p project && cd project; export STEP=1";
  yield "cat >count.sh <<'END'\nfor word in $(cat words); do echo $word; done | sort | uniq -c\nEND";
  let result = yield "bash count.sh";
  if (result.stderr.includes("No such file")) result = yield "printf 'b a b\\n' >words; bash count.sh";
  yield `echo done after $STEP fix: ${result.stdout.trim().split("\n").length} words; pwd`;
}

const sandbox = getSandbox(new Isolet(), `example-${Date.now()}`);
const shell = sandbox.shell();
try {
  const turns = agent();
  for (let turn = turns.next(); !turn.done; ) {
    const result = await shell.run(turn.value, { timeout: 60_000 });
    console.log(`$ ${turn.value.split("\n")[0]}\n${result.stdout}${result.stderr}[${result.exitCode}]`);
    turn = turns.next(result);
  }
} finally {
  shell.close();
  await sandbox.destroy();
}
