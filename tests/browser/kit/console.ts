/** A console in a page, signed in. Records policy violations and requests to other servers. */

import { randomUUID } from "node:crypto";
import { mkdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { createRequire } from "node:module";
import type { Locator, Page } from "@playwright/test";
import { expect, test as base } from "./test.js";
import type { Server } from "./server.js";

export { expect } from "./test.js";

/** Folder for screenshots, which a person reviews. */
const PICTURES = fileURLToPath(new URL("../../../target/artifacts/console/", import.meta.url));

/** The checker of accessibility, as a script. The page's policy does not apply to what a test runs in it. */
const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"];

/** Markup in a tenant's data. It must only ever appear as text. */
export const MARKUP = `"><img src=x onerror=window.pwned=1><script>window.pwned=1</script>`;

export class Console {
  readonly id = `console-${randomUUID().slice(0, 8)}`;
  /** Policy violations, and errors thrown in the page. */
  readonly violations: string[] = [];
  /** Requests to other servers. */
  readonly foreignRequests: string[] = [];
  readonly #others: Console[] = [];

  constructor(
    readonly server: Server,
    readonly page: Page,
  ) {}

  async watch(): Promise<void> {
    this.page.on("pageerror", (error) => this.violations.push(`thrown: ${error.message}`));
    this.page.on("console", (message) => {
      if (/Content Security Policy|Trusted/i.test(message.text())) this.violations.push(message.text());
    });
    const isForeign = (url: string): boolean =>
      !["http", "ws"].some((scheme) => url.startsWith(`${scheme}://127.0.0.1:${this.server.port}/`)) &&
      !url.startsWith(`blob:${this.server.url}/`) &&
      !url.startsWith("data:");
    this.page.on("request", (request) => isForeign(request.url()) && this.foreignRequests.push(request.url()));
    this.page.on("websocket", (socket) => isForeign(socket.url()) && this.foreignRequests.push(socket.url()));
    await this.page.addInitScript(() => {
      addEventListener("securitypolicyviolation", (event) =>
        console.error(`Content Security Policy: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`),
      );
    });
  }

  /** Open the console through the server's printed address, then go to a route. */
  async open(place = "", key = this.server.key): Promise<void> {
    await this.page.goto(`${this.server.url}/#key=${key}`);
    await expect(this.page.locator(".health.good")).toBeVisible();
    if (place !== "") await this.go(place);
  }

  /** Go to a route. */
  async go(place: string): Promise<void> {
    await this.page.evaluate((to) => void (location.hash = to), `#/${place}`);
  }

  /** Call the API directly. */
  async api<T>(method: string, path: string, body?: unknown): Promise<T> {
    return this.server.json<T>(method, path, body);
  }

  /** Create the test's sandbox. */
  async made(more: Record<string, unknown> = {}): Promise<string> {
    await this.api("POST", "/v1/sandboxes", { id: this.id, ...more });
    return this.id;
  }

  /** Run a command in a session's shell. */
  async exec(session: string, command: string): Promise<{ exit_code: number; stdout: string }> {
    return this.api("POST", `/v1/sandboxes/${this.id}/sessions/${session}/exec`, { command });
  }

  /** Make terminals draw with DOM elements, which tests can read, as in a browser without WebGL. */
  async plain(): Promise<void> {
    await this.page.addInitScript(() => {
      const get = HTMLCanvasElement.prototype.getContext as (kind: string, ...more: unknown[]) => unknown;
      HTMLCanvasElement.prototype.getContext = function (this: HTMLCanvasElement, kind: string, ...more: unknown[]) {
        return kind.startsWith("webgl") ? null : get.call(this, kind, ...more);
      } as typeof HTMLCanvasElement.prototype.getContext;
    });
  }

  /** Text on the screen of the current terminal; requires {@link Console.plain}. */
  async screen(): Promise<string> {
    const rows = await this.page.locator(".xterm-rows > div").allTextContents();
    return rows.map((row) => row.replaceAll("\u00a0", " ").trimEnd()).join("\n");
  }

  /** Wait until the screen contains a text. */
  async shows(what: string | RegExp): Promise<void> {
    const check = expect.poll(() => this.screen(), { timeout: 20_000 });
    if (typeof what === "string") await check.toContain(what);
    else await check.toMatch(what);
  }

  /** Type a line into the terminal. */
  async type(line: string): Promise<void> {
    await this.page.locator(".xterm-helper-textarea").focus();
    await this.page.keyboard.type(line);
    await this.page.keyboard.press("Enter");
  }

  /** Wait until the terminal accepts input. */
  async ready(): Promise<void> {
    await expect(this.page.locator(".handle.live")).not.toHaveCount(0);
    await this.shows(/[#$] ?$/m);
  }

  button(name: string | RegExp): Locator {
    return this.page.getByRole("button", { name });
  }

  /** A second page in the same browser, as another user. */
  async other(): Promise<Console> {
    const page = await this.page.context().browser()!.newPage();
    const other = new Console(this.server, page);
    Object.assign(other, { id: this.id });
    await other.watch();
    this.#others.push(other);
    return other;
  }

  /** Check the page against the rules of WCAG 2.2 A and AA. */
  async accessible(what: string): Promise<void> {
    await this.page.evaluate(AXE);
    const found = await this.page.evaluate(async (tags) => {
      const { violations } = await (window as any).axe.run(document, { runOnly: tags });
      return violations.flatMap((one: any) => one.nodes.map((node: any) => `${one.id}: ${node.target.join(" ")}: ${node.failureSummary}`));
    }, TAGS);
    expect(found, what).toEqual([]);
  }

  /** A key of the server's tenant, made for this test. */
  async newKey(fields: Record<string, unknown>): Promise<{ id: string; secret: string }> {
    return this.api("POST", "/v1/keys", { label: this.id, ...fields });
  }

  /** Save a screenshot for review. */
  async picture(name: string): Promise<void> {
    mkdirSync(PICTURES, { recursive: true });
    await this.page.screenshot({ path: `${PICTURES}${name}.png` });
  }

  async end(): Promise<void> {
    for (const one of [...this.#others, this]) {
      expect(await one.page.evaluate(() => "pwned" in window).catch(() => false)).toBe(false);
      expect(one.violations).toEqual([]);
      expect(one.foreignRequests).toEqual([]);
      await one.page.close();
    }
    await fetch(`${this.server.url}/v1/sandboxes/${this.id}`, { method: "DELETE", headers: this.server.headers });
  }
}

/**
 * `test` with a console. At its end, it checks that there were no policy violations and no requests to other
 * servers.
 */
export const test = base.extend<{ console: Console }>({
  console: async ({ world, page }, use) => {
    const one = new Console(world.server, page);
    await one.watch();
    await use(one);
    await one.end();
  },
});
