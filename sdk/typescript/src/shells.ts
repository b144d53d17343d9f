/** Where a shell is reached. */

import type { Isolet } from "./client.js";
import { Shell } from "./shell.js";
import type { ShellOptions } from "./shell-options.js";
import { here } from "./socket.js";
import { ticket } from "./terminals.js";

/** A shell of a sandbox. `path` is the sandbox's, once it is there. */
export function shell(
  client: Isolet,
  sandbox: string,
  path: () => Promise<string>,
  options: ShellOptions,
): Shell {
  const { sessionId: session } = options;
  return new Shell(async (query) => {
    const url = client.url.replace(/^http/, "ws") + (await path()) + "/shell?";
    if (here().headers) return { url: url + query, headers: client.headers() };
    const opens = await ticket(client, sandbox, { use: "shell", ...(session === undefined ? {} : { session }) });
    query.set("ticket", opens.ticket);
    return { url: url + query };
  }, options);
}
