/** `test` with a {@link Lab}; each worker has one server. */

import { test as base } from "@playwright/test";
import { Lab } from "./lab.js";
import { Pages } from "./pages.js";
import { Registry } from "./registry.js";
import { Server } from "./server.js";

export { expect } from "@playwright/test";

interface World {
  pages: Pages;
  server: Server;
  registry: Registry;
}

export const test = base.extend<{ lab: Lab }, { world: World }>({
  world: [
    async ({}, use) => {
      const pages = await Pages.serve();
      const registry = await Registry.start();
      const server = await Server.start([pages.origin], [registry.host]);
      await use({ pages, server, registry });
      await server.stop();
      registry.close();
      pages.close();
    },
    { scope: "worker", timeout: 180_000 },
  ],
  lab: async ({ world, page }, use) => {
    const lab = new Lab(world.server, world.pages, page);
    await lab.begin();
    await use(lab);
    await lab.end();
  },
});
