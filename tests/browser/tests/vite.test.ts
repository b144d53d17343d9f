/** A real Vite server in a sandbox, opened in Chromium: its page, and hot reload over a WebSocket. */

import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { expect, test } from "@playwright/test";
import { Server } from "../kit/server.js";

const modules = fileURLToPath(new URL("../node_modules", import.meta.url));
/** Vite and its dependencies. */
const NEEDED = [
  "vite",
  "esbuild",
  "@esbuild",
  "rollup",
  "@rollup",
  "@types/estree",
  "postcss",
  "nanoid",
  "picocolors",
  "source-map-js",
  "fdir",
  "picomatch",
  "tinyglobby",
];
const FILES = {
  "index.html": '<!doctype html><h1></h1><input id="note"><script type="module" src="/main.js"></script>',
  "main.js":
    'import { text } from "./text.js";\nconst show = (it) => (document.querySelector("h1").textContent = it);\n' +
    'show(text);\nimport.meta.hot.accept("./text.js", (next) => show(next.text));\n',
  "text.js": 'export const text = "first";\n',
};

test("a Vite dev server's page is changed in place when its file is", async ({ page }) => {
  test.setTimeout(120_000);
  const server = await Server.start([]);
  try {
    const base = `${server.url}/v1/sandboxes/demo`;
    const put = async (path: string, body: Uint8Array<ArrayBuffer> | string): Promise<void> => {
      const answer = await fetch(`${base}/files/${path}`, { method: "PUT", headers: server.headers, body });
      expect(answer.ok, await answer.text()).toBe(true);
    };
    await server.json("POST", "/v1/sandboxes", { id: "demo" });
    const packed = execFileSync("tar", ["-c", "-C", modules, ...NEEDED], { maxBuffer: 512 << 20 });
    await put("node_modules?untar=1", new Uint8Array(packed));
    for (const [name, text] of Object.entries(FILES)) await put(name, text);
    const start = "setsid node node_modules/vite/bin/vite.js --port 5173 --strictPort >/tmp/vite.log 2>&1 </dev/null &";
    await server.json("POST", "/v1/sandboxes/demo/exec", { command: start });
    const open = async (): Promise<number[]> =>
      (await server.json<{ port: number }[]>("GET", "/v1/sandboxes/demo/ports")).map((one) => one.port);
    await expect.poll(open, { timeout: 30_000 }).toContain(5173);

    const made = await server.json<{ url: string }>("POST", "/v1/sandboxes/demo/links", { port: 5173 });
    expect(new URL(made.url).hostname).toBe("5173-demo.localhost");
    const sockets: string[] = [];
    page.on("websocket", (socket) => sockets.push(socket.url()));
    const connected = page.waitForEvent("console", (message) => message.text() === "[vite] connected.");
    await page.goto(made.url);
    expect(page.url()).toBe(`http://5173-demo.localhost:${server.port}/`);
    await connected;
    await expect(page.locator("h1")).toHaveText("first");
    expect(sockets.map((url) => new URL(url).host)).toEqual([`5173-demo.localhost:${server.port}`]);

    // The page keeps its state: it is updated in place, not reloaded.
    await page.fill("#note", "typed before");
    await put("text.js", 'export const text = "second";\n');
    await expect(page.locator("h1")).toHaveText("second");
    expect(await page.inputValue("#note")).toBe("typed before");

    // Another browser has no access, and the page cannot reach the console's origin.
    const stranger = await page.context().browser()!.newPage();
    expect((await stranger.goto(page.url()))?.status()).toBe(401);
    expect(await page.evaluate(() => document.cookie)).toBe("");
    const reaches = await page.evaluate(
      (url) => fetch(`${url}/v1/sandboxes`).then(() => "reached", () => "refused"),
      server.url,
    );
    expect(reaches).toBe("refused");
  } finally {
    await server.stop();
  }
});

test("a guest's page below a path is nobody's page", async ({ page }) => {
  const server = await Server.start([]);
  try {
    await server.json("POST", "/v1/sandboxes", { id: "Not_a_host" });
    const base = `${server.url}/v1/sandboxes/Not_a_host`;
    const html =
      "<!doctype html><h1></h1><script>const tried = []; const attempt = (name, work) => { try { work(); tried.push(name) } catch {} };" +
      "attempt('storage', () => localStorage.length); attempt('cookie', () => (document.cookie = 'a=b'));" +
      "tried.push(self.origin); document.querySelector('h1').textContent = tried.join()</script>";
    await fetch(`${base}/files/index.html`, { method: "PUT", headers: server.headers, body: html });
    const command = "setsid python3 -m http.server --bind 127.0.0.1 8000 >/dev/null 2>&1 </dev/null &";
    await server.json("POST", "/v1/sandboxes/Not_a_host/exec", { command });
    const open = async (): Promise<unknown[]> => server.json("GET", "/v1/sandboxes/Not_a_host/ports");
    await expect.poll(open).toHaveLength(1);
    const made = await server.json<{ url: string }>("POST", "/v1/sandboxes/Not_a_host/links", { port: 8000 });
    expect(made.url.startsWith(`${server.url}/v1/links/`)).toBe(true);
    await page.goto(made.url);
    await expect(page.locator("h1")).toHaveText("null");
    expect(await page.context().cookies()).toEqual([]);
  } finally {
    await server.stop();
  }
});
