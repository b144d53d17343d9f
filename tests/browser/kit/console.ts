/** A console in a page: signed in, watched for whatever it must not do. */

import { randomUUID } from "node:crypto";
import { mkdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { Locator, Page } from "@playwright/test";
import { expect, test as base } from "./test.js";
import type { Server } from "./server.js";

export { expect } from "./test.js";

/** Pictures of the console, to be looked at. */
const PICTURES = fileURLToPath(new URL("../../../target/artifacts/console/", import.meta.url));

/** What a tenant may try to have shown; none of it may be more than text. */
export const MARKUP = `"><img src=x onerror=window.pwned=1><script>window.pwned=1</script>`;

export class Console {
  readonly id = `console-${randomUUID().slice(0, 8)}`;
  /** What the page's policy refused, and what was thrown in the page. */
  readonly wrongs: string[] = [];
  /** Addresses beyond the server that the page has asked for. */
  readonly strange: string[] = [];
  readonly #others: Console[] = [];

  constructor(
    readonly server: Server,
    readonly page: Page,
  ) {}

  async watch(): Promise<void> {
    this.page.on("pageerror", (error) => this.wrongs.push(`thrown: ${error.message}`));
    this.page.on("console", (message) => {
      if (/Content Security Policy|Trusted/i.test(message.text())) this.wrongs.push(message.text());
    });
    const strange = (url: string): boolean =>
      !["http", "ws"].some((scheme) => url.startsWith(`${scheme}://127.0.0.1:${this.server.port}/`)) &&
      !url.startsWith(`blob:${this.server.url}/`) &&
      !url.startsWith("data:");
    this.page.on("request", (request) => strange(request.url()) && this.strange.push(request.url()));
    this.page.on("websocket", (socket) => strange(socket.url()) && this.strange.push(socket.url()));
    await this.page.addInitScript(() => {
      addEventListener("securitypolicyviolation", (event) =>
        console.error(`Content Security Policy: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`),
      );
    });
  }

  /** Opens it as the server's printed address does, then goes to a place. */
  async open(place = ""): Promise<void> {
    await this.page.goto(`${this.server.url}/#key=${this.server.key}`);
    await expect(this.page.locator(".health.good")).toBeVisible();
    if (place !== "") await this.go(place);
  }

  /** Goes to a place within it. */
  async go(place: string): Promise<void> {
    await this.page.evaluate((to) => void (location.hash = to), `#/${place}`);
  }

  /** A call beside the page. */
  async api<T>(method: string, path: string, body?: unknown): Promise<T> {
    return this.server.json<T>(method, path, body);
  }

  /** A sandbox of the test's own. */
  async made(more: Record<string, unknown> = {}): Promise<string> {
    await this.api("POST", "/v1/sandboxes", { id: this.id, ...more });
    return this.id;
  }

  /** A command in a session's shell. */
  async exec(session: string, command: string): Promise<{ exit_code: number; stdout: string }> {
    return this.api("POST", `/v1/sandboxes/${this.id}/sessions/${session}/exec`, { command });
  }

  /** Has terminals drawn by elements, where a test can read them: as in a browser without WebGL. */
  async plain(): Promise<void> {
    await this.page.addInitScript(() => {
      const get = HTMLCanvasElement.prototype.getContext as (kind: string, ...more: unknown[]) => unknown;
      HTMLCanvasElement.prototype.getContext = function (this: HTMLCanvasElement, kind: string, ...more: unknown[]) {
        return kind.startsWith("webgl") ? null : get.call(this, kind, ...more);
      } as typeof HTMLCanvasElement.prototype.getContext;
    });
  }

  /** What the terminal that is looked at shows; see {@link Console.plain}. */
  async screen(): Promise<string> {
    const rows = await this.page.locator(".xterm-rows > div").allTextContents();
    return rows.map((row) => row.replaceAll("\u00a0", " ").trimEnd()).join("\n");
  }

  /** Waits until it shows something. */
  async shows(what: string | RegExp): Promise<void> {
    const check = expect.poll(() => this.screen(), { timeout: 20_000 });
    if (typeof what === "string") await check.toContain(what);
    else await check.toMatch(what);
  }

  /** Types a line into the terminal. */
  async type(line: string): Promise<void> {
    await this.page.locator(".xterm-helper-textarea").focus();
    await this.page.keyboard.type(line);
    await this.page.keyboard.press("Enter");
  }

  /** Waits until the terminal is there and can be typed into. */
  async ready(): Promise<void> {
    await expect(this.page.locator(".handle.live")).not.toHaveCount(0);
    await this.shows(/[#$] ?$/m);
  }

  button(name: string | RegExp): Locator {
    return this.page.getByRole("button", { name });
  }

  /** Another page of the same browser, by another person. */
  async other(): Promise<Console> {
    const page = await this.page.context().browser()!.newPage();
    const other = new Console(this.server, page);
    Object.assign(other, { id: this.id });
    await other.watch();
    this.#others.push(other);
    return other;
  }

  /** A picture, to be looked at. */
  async picture(name: string): Promise<void> {
    mkdirSync(PICTURES, { recursive: true });
    await this.page.screenshot({ path: `${PICTURES}${name}.png` });
  }

  async end(): Promise<void> {
    for (const one of [...this.#others, this]) {
      expect(await one.page.evaluate(() => "pwned" in window).catch(() => false)).toBe(false);
      expect(one.wrongs).toEqual([]);
      expect(one.strange).toEqual([]);
      await one.page.close();
    }
    await fetch(`${this.server.url}/v1/sandboxes/${this.id}`, { method: "DELETE", headers: this.server.headers });
  }
}

/** `test` with a console: at its end nothing was refused by the page's policy, and nothing asked elsewhere. */
export const test = base.extend<{ console: Console }>({
  console: async ({ world, page }, use) => {
    const one = new Console(world.server, page);
    await one.watch();
    await use(one);
    await one.end();
  },
});
