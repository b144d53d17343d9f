/** Connecting to shells. */

import type { Isolet } from "./client.js";
import { Shell } from "./shell.js";
import type { ShellOptions } from "./shell-options.js";
import { currentPlatform } from "./socket.js";
import { ticket } from "./terminals.js";

/** Open a shell of a sandbox. `path` returns the sandbox's URL path, after creating it if needed. */
export function attachShell(
  client: Isolet,
  sandbox: string,
  path: () => Promise<string>,
  options: ShellOptions,
): Shell {
  const { sessionId: session } = options;
  return new Shell(async (query) => {
    const url = client.url.replace(/^http/, "ws") + (await path()) + "/shell?";
    if (currentPlatform().headers) return { url: url + query, headers: client.headers() };
    const opens = await ticket(client, sandbox, { use: "shell", ...(session === undefined ? {} : { session }) });
    query.set("ticket", opens.ticket);
    return { url: url + query };
  }, options);
}

/**
 * Open a shell at an address: for web pages, which must not know the key. Their server creates a ticket
 * (`sandbox.createTicket({ use: "shell" })`) for each connection and sends the address with it to the page.
 *
 * @param address returns `wss://…/v1/sandboxes/ID/shell?ticket=…`; called for each connection.
 * @param options `sessionId` must match the ticket's session.
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
