/** What a test works with: a sandbox of its own, a page with terminals, and the networks between. */

import { randomUUID } from "node:crypto";
import { expect, type Page } from "@playwright/test";
import { file, type Pages } from "./pages.js";
import { Proxy } from "./proxy.js";
import type { Server } from "./server.js";

/** How a terminal is opened in the page. */
export interface Shown {
  /** What it is reached through; the server itself unless told. */
  proxy?: Proxy;
  session?: string;
  mode?: "view";
  cols?: number;
  rows?: number;
  unparsedMax?: number;
  /** Options of the SDK: shell, name, reconnect. */
  terminal?: Record<string, unknown>;
}

/** Tries again soon: tests are not to wait for networks that they have themselves cut. */
const SOON = { reconnect: { firstMs: 20, mostMs: 200, tries: 500 } };

type Kit = any;

export class Lab {
  readonly sandbox = `browser-${randomUUID()}`;
  readonly #proxies: Proxy[] = [];

  constructor(
    readonly server: Server,
    readonly pages: Pages,
    readonly page: Page,
  ) {}

  /** Loads the page. */
  async begin(): Promise<void> {
    await this.page.exposeFunction("ticket", async (wanted: Record<string, string>) => {
      const made = await this.server.json<{ ticket: string }>("POST", "/v1/tickets", {
        use: "terminal",
        ...wanted,
        ttl_s: 300,
      });
      return made.ticket;
    });
    await this.server.json("POST", "/v1/sandboxes", { id: this.sandbox });
    await this.load(this.pages.origin);
  }

  /** Loads the page from an origin. */
  async load(origin: string): Promise<void> {
    await this.page.goto(`${origin}/kit/index.html`);
    await this.page.waitForFunction(() => "kit" in window);
  }

  /** Loads the page from the server's own origin, as the console's are. */
  async loadAtServer(): Promise<void> {
    await this.page.route(/\/(kit|sdk|modules)\//, async (route) => {
      const found = await file(new URL(route.request().url()).pathname);
      await route.fulfill(found ? { body: found.body, contentType: found.type } : { status: 404 });
    });
    // A document that the server itself sends: Chromium asks where a page came from.
    await this.page.goto(`${this.server.url}/health`);
    await this.page.setContent((await file("/kit/index.html"))!.body.toString());
    await this.page.waitForFunction(() => "kit" in window);
  }

  async end(): Promise<void> {
    // The page first: its terminals would make the sandbox anew.
    await this.page.close();
    for (const proxy of this.#proxies) proxy.close();
    await fetch(`${this.server.url}/v1/sandboxes/${this.sandbox}`, {
      method: "DELETE",
      headers: this.server.headers,
    });
  }

  /** A network of the test's own. */
  async proxy(): Promise<Proxy> {
    const proxy = await Proxy.before(this.server.port);
    this.#proxies.push(proxy);
    return proxy;
  }

  /** Opens a terminal in the page and waits until it is ready. */
  async open(name: string, shown: Shown = {}): Promise<void> {
    const { proxy, session = "default", mode, cols = 80, rows = 24, unparsedMax, terminal } = shown;
    const at = { port: proxy?.port ?? this.server.port, sandbox: this.sandbox, session, ...(mode ? { mode } : {}) };
    const options = { terminal: { ...SOON, ...terminal }, ...(unparsedMax ? { unparsedMax } : {}) };
    await this.in(({ kit, told }) => kit.open(...told), [name, at, { cols, rows }, options]);
    await this.state(name, "connected");
  }

  /** Calls in the page. */
  async in<T>(call: (here: { kit: Kit; told: any }) => T, told?: unknown): Promise<Awaited<T>> {
    const source = call.toString();
    return this.page.evaluate(
      // The call is the test's own text.
      ([text, value]) => (0, eval)(`(${text})`)({ kit: (window as Kit).kit, told: value }),
      [source, told] as const,
    ) as Promise<Awaited<T>>;
  }

  /** Waits for a state of a terminal's connection. */
  async state(name: string, state: string): Promise<void> {
    await expect
      .poll(() => this.in(({ kit, told }) => kit.shown[told].addon.state, name), { timeout: 30_000 })
      .toBe(state);
  }

  /** Types by the keyboard. */
  async type(name: string, text: string): Promise<void> {
    await this.in(({ kit, told }) => kit.shown[told].xterm.focus(), name);
    for (const part of text.split(/(\n)/)) {
      if (part === "\n") await this.page.keyboard.press("Enter");
      else if (part !== "") await this.page.keyboard.type(part);
    }
  }

  /** Presses a key, as `Control+c`. */
  async press(name: string, key: string): Promise<void> {
    await this.in(({ kit, told }) => kit.shown[told].xterm.focus(), name);
    await this.page.keyboard.press(key);
  }

  /** Waits until the screen shows something. */
  async shows(name: string, what: string | RegExp, timeout = 15_000): Promise<void> {
    const screen = (): Promise<string> => this.in(({ kit, told }) => kit.screen(told), name);
    if (typeof what === "string") await expect.poll(screen, { timeout }).toContain(what);
    else await expect.poll(screen, { timeout }).toMatch(what);
  }

  /** A program beside the terminals. */
  async exec(command: string): Promise<string> {
    const path = `/v1/sandboxes/${this.sandbox}/exec`;
    const done = await this.server.json<{ exit_code: number; stdout: string; stderr: string }>("POST", path, {
      command,
    });
    if (done.exit_code !== 0) throw new Error(`${command}: ${done.exit_code} ${done.stderr}`);
    return done.stdout;
  }

  /** How far the terminal of a session is. */
  async offset(session = "default"): Promise<number> {
    const all = await this.server.json<{ session: string; offset: number }[]>(
      "GET",
      `/v1/sandboxes/${this.sandbox}/terminals`,
    );
    return all.find((one) => one.session === session)?.offset ?? -1;
  }

  /** Waits until the program is quiet and all of these terminals have all of its output parsed. */
  async settled(names: string[], session = "default"): Promise<void> {
    let before = -1;
    await expect
      .poll(
        async () => {
          const now = await this.offset(session);
          const seen = await this.in(
            async ({ kit, told }) => {
              const all = [];
              for (const name of told) {
                await kit.parsed(name);
                const { terminal } = kit.shown[name];
                all.push(terminal.state === "connected" ? terminal.offset : -1);
              }
              return all;
            },
            names,
          );
          const quiet = now === before && (seen as number[]).every((offset) => offset === now);
          before = now;
          return quiet;
        },
        { timeout: 30_000, intervals: [150] },
      )
      .toBe(true);
  }

  /** That a terminal which came back is, cell for cell, one that stayed. */
  async same(stayed: string, returned: string): Promise<void> {
    await this.settled([stayed, returned]);
    const [first, second] = await this.in(
      ({ kit, told }) => told.map((name: string) => kit.dump(name)),
      [stayed, returned],
    );
    expect(second).toEqual(first);
  }
}
