/** Serves the tests' page and the packages that it imports, from a separate origin. */

import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { extname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";

const here = (path: string): string => fileURLToPath(new URL(path, import.meta.url));

/** Folders by the first segment of the path. */
const FOLDERS: Record<string, string> = {
  kit: here("page/"),
  sdk: here("../../../sdk/typescript/dist/"),
  modules: here("../node_modules/"),
};
const TYPES: Record<string, string> = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript",
  ".mjs": "text/javascript",
  ".css": "text/css",
};

/** Read the file of `/folder/path`. */
export async function file(path: string): Promise<{ body: Buffer; type: string } | undefined> {
  const [, folder = "", rest = ""] = /^\/(\w+)\/(.+)$/.exec(normalize(path)) ?? [];
  const root = FOLDERS[folder];
  if (root === undefined || rest.includes("..")) return undefined;
  const body = await readFile(join(root, rest)).catch(() => undefined);
  return body && { body, type: TYPES[extname(rest)] ?? "application/octet-stream" };
}

export class Pages {
  private constructor(private readonly server: Server) {}

  static async serve(): Promise<Pages> {
    const server = createServer((request, response) => {
      void file(new URL(request.url ?? "/", "http://page").pathname).then((found) => {
        response.writeHead(found ? 200 : 404, { "content-type": found?.type ?? "text/plain" });
        response.end(found?.body);
      });
    }).listen(0, "127.0.0.1");
    await once(server, "listening");
    return new Pages(server);
  }

  get origin(): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  close(): void {
    this.server.close();
    this.server.closeAllConnections();
  }
}
