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

/**
 * Opens a shell at an address: for pages, which are not to know the key. Their server takes a ticket
 * (`sandbox.createTicket({ use: "shell" })`) for each connection and tells the page the address with it.
 * @param address gives `wss://…/v1/sandboxes/ID/shell?ticket=…`; asked for each connection. The ticket
 * of a session's shell is that session's, and `sessionId` names it.
 */
export function openShell(
  address: () => string | URL | Promise<string | URL>,
  options: ShellOptions = {},
): Shell {
  return new Shell(async (query) => {
    const url = new URL(await address());
    url.protocol = url.protocol.replace(/^http/, "ws");
    for (const [name, value] of query) url.searchParams.append(name, value);
    return { url: url.href };
  }, options);
}
