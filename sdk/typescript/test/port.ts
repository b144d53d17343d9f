/** Ports for the tests of npm projects: the SDK's, and those of `tests/browser`. */

import { once } from "node:events";
import { createServer } from "node:net";

/** How many ports each test project has for itself. */
const PORTS = 2000;
/**
 * The first port of each. All lie below the range from which the kernel takes those of clients, so that no connection
 * uses one before its server.
 */
const FIRST = { sdk: 16_000, browser: 18_000 };

let next = process.pid * 8;

/** A port that is free at the moment. */
export async function freePort(project: keyof typeof FIRST): Promise<number> {
  for (let tries = 0; tries < PORTS; tries++) {
    const port = FIRST[project] + (next++ % PORTS);
    const server = createServer();
    const isFree = await new Promise<boolean>((done) => {
      server.once("error", () => done(false));
      server.listen(port, "127.0.0.1", () => done(true));
    });
    if (!isFree) continue;
    server.close();
    await once(server, "close");
    return port;
  }
  throw new Error("no port is free");
}
