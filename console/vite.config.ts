import { copyFileSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { basename, join } from "node:path";
import { gzipSync } from "node:zlib";
import { defineConfig, type Plugin } from "vite";

/** Server that `npx vite` forwards API calls to. */
const SERVER = process.env["ISOLET_URL"] ?? "http://127.0.0.1:7300";

const sdk = (file: string): string => fileURLToPath(new URL(`../sdk/typescript/src/${file}`, import.meta.url));

/** The page of the API reference: its own files, and the renderer as its package ships it. */
function apiReference(): Plugin {
  const own = fileURLToPath(new URL("docs", import.meta.url));
  const renderer = fileURLToPath(new URL("node_modules/swagger-ui-dist", import.meta.url));
  const files = [
    ...["index.html", "start.js", "page.css"].map((name) => join(own, name)),
    ...["swagger-ui-bundle.js", "swagger-ui-bundle.js.LICENSE.txt", "swagger-ui.css", "LICENSE", "NOTICE"].map((name) =>
      join(renderer, name),
    ),
  ];
  return {
    name: "api-reference",
    apply: "build",
    writeBundle({ dir }) {
      const docs = join(dir!, "docs");
      mkdirSync(docs, { recursive: true });
      for (const file of files) copyFileSync(file, join(docs, basename(file)));
    },
  };
}

/** Write a gzip file beside each text file: the server does not compress. */
function compressed(): Plugin {
  return {
    name: "compressed",
    apply: "build",
    writeBundle({ dir }) {
      for (const file of readdirSync(dir!, { recursive: true, encoding: "utf8" })) {
        if (!/\.(js|css|svg|html)$/.test(file)) continue;
        const path = join(dir!, file);
        writeFileSync(`${path}.gz`, gzipSync(readFileSync(path), { level: 9 }));
      }
    },
  };
}

export default defineConfig({
  plugins: [apiReference(), compressed()],
  esbuild: { jsx: "automatic", jsxImportSource: "preact" },
  resolve: {
    alias: [
      { find: /^@isolet\/sdk\/xterm$/, replacement: sdk("xterm.ts") },
      { find: /^@isolet\/sdk$/, replacement: sdk("index.ts") },
    ],
    dedupe: ["@xterm/xterm"],
  },
  server: {
    host: "127.0.0.1",
    proxy: Object.fromEntries(
      ["/v1", "/health", "/docs"].map((path) => [path, { target: SERVER, ws: true, changeOrigin: true, headers: { origin: SERVER } }]),
    ),
  },
  // The Content Security Policy forbids inline assets.
  build: { assetsInlineLimit: 0, modulePreload: { polyfill: false }, target: "es2022", chunkSizeWarningLimit: 900 },
});
