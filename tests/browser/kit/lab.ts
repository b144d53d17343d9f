/** Environment of a test: its own sandbox, a page with terminals, and network proxies between them. */

import { randomUUID } from "node:crypto";
import { expect, type Page } from "@playwright/test";
import { file, type Pages } from "./pages.js";
import { Proxy } from "./proxy.js";
import type { Server } from "./server.js";

/** Options for opening a terminal in the page. */
export interface Shown {
  /** Proxy to connect through; by default, the server itself. */
  proxy?: Proxy;
  session?: string;
  mode?: "view";
  cols?: number;
  rows?: number;
  unparsedMax?: number;
  /** SDK options: shell, name, reconnect. */
  terminal?: Record<string, unknown>;
}

/** Short reconnect delays, since the tests cut the network themselves. */
const FAST_RECONNECT = { reconnect: { initialDelayMs: 20, maxDelayMs: 200, maxAttempts: 500 } };

type Kit = any;

export class Lab {
  readonly sandbox = `browser-${randomUUID()}`;
  readonly #proxies: Proxy[] = [];

  constructor(
    readonly server: Server,
    readonly pages: Pages,
    readonly page: Page,
  ) {}

  /** Load the page. */
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

  /** Load the page from an origin. */
  async load(origin: string): Promise<void> {
    await this.page.goto(`${origin}/kit/index.html`);
    await this.page.waitForFunction(() => "kit" in window);
  }

  /** Load the page from the server's own origin, like the console. */
  async loadAtServer(): Promise<void> {
    await this.page.route(/\/(kit|sdk|modules)\//, async (route) => {
      const found = await file(new URL(route.request().url()).pathname);
      await route.fulfill(found ? { body: found.body, contentType: found.type } : { status: 404 });
    });
    // A document from the server itself, so that Chromium gives the page the server's origin.
    await this.page.goto(`${this.server.url}/health`);
    await this.page.setContent((await file("/kit/index.html"))!.body.toString());
    await this.page.waitForFunction(() => "kit" in window);
  }

  async end(): Promise<void> {
    // Close the page first: its terminals would recreate the sandbox.
    await this.page.close();
    for (const proxy of this.#proxies) proxy.close();
    await fetch(`${this.server.url}/v1/sandboxes/${this.sandbox}`, {
      method: "DELETE",
      headers: this.server.headers,
    });
  }

  /** Create a proxy in front of the server. */
  async proxy(): Promise<Proxy> {
    const proxy = await Proxy.before(this.server.port);
    this.#proxies.push(proxy);
    return proxy;
  }

  /** Open a terminal in the page and wait until it is connected. */
  async open(name: string, shown: Shown = {}): Promise<void> {
    const { proxy, session = "default", mode, cols = 80, rows = 24, unparsedMax, terminal } = shown;
    const at = { port: proxy?.port ?? this.server.port, sandbox: this.sandbox, session, ...(mode ? { mode } : {}) };
    const options = { terminal: { ...FAST_RECONNECT, ...terminal }, ...(unparsedMax ? { unparsedMax } : {}) };
    await this.in(({ kit, args }) => kit.open(...args), [name, at, { cols, rows }, options]);
    await this.state(name, "connected");
  }

  /** Run a function in the page. */
  async in<T>(call: (here: { kit: Kit; args: any }) => T, args?: unknown): Promise<Awaited<T>> {
    const source = call.toString();
    return this.page.evaluate(
      // The evaluated text is a function of the test.
      ([text, value]) => (0, eval)(`(${text})`)({ kit: (window as Kit).kit, args: value }),
      [source, args] as const,
    ) as Promise<Awaited<T>>;
  }

  /** Wait for a connection state of a terminal. */
  async state(name: string, state: string): Promise<void> {
    await expect
      .poll(() => this.in(({ kit, args }) => kit.shown[args].addon.state, name), { timeout: 30_000 })
      .toBe(state);
  }

  /** Type on the keyboard. */
  async type(name: string, text: string): Promise<void> {
    await this.in(({ kit, args }) => kit.shown[args].xterm.focus(), name);
    for (const part of text.split(/(\n)/)) {
      if (part === "\n") await this.page.keyboard.press("Enter");
      else if (part !== "") await this.page.keyboard.type(part);
    }
  }

  /** Press a key such as `Control+c`. */
  async press(name: string, key: string): Promise<void> {
    await this.in(({ kit, args }) => kit.shown[args].xterm.focus(), name);
    await this.page.keyboard.press(key);
  }

  /** Wait until the screen contains a text. */
  async shows(name: string, what: string | RegExp, timeout = 40_000): Promise<void> {
    const screen = (): Promise<string> => this.in(({ kit, args }) => kit.screen(args), name);
    if (typeof what === "string") await expect.poll(screen, { timeout }).toContain(what);
    else await expect.poll(screen, { timeout }).toMatch(what);
  }

  /** Run a program in the sandbox. */
  async exec(command: string): Promise<string> {
    const path = `/v1/sandboxes/${this.sandbox}/exec`;
    const done = await this.server.json<{ exit_code: number; stdout: string; stderr: string }>("POST", path, {
      command,
    });
    if (done.exit_code !== 0) throw new Error(`${command}: ${done.exit_code} ${done.stderr}`);
    return done.stdout;
  }

  /** Output offset of a session's terminal. */
  async offset(session = "default"): Promise<number> {
    const all = await this.server.json<{ session: string; offset: number }[]>(
      "GET",
      `/v1/sandboxes/${this.sandbox}/terminals`,
    );
    return all.find((one) => one.session === session)?.offset ?? -1;
  }

  /** Wait until the program is quiet and the given terminals have parsed all of its output. */
  async settled(names: string[], session = "default"): Promise<void> {
    let before = -1;
    await expect
      .poll(
        async () => {
          const now = await this.offset(session);
          const seen = await this.in(
            async ({ kit, args }) => {
              const all = [];
              for (const name of args) {
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

  /** Check that a reconnected terminal equals one that stayed connected, cell by cell. */
  async same(stayed: string, returned: string): Promise<void> {
    await this.settled([stayed, returned]);
    const [first, second] = await this.in(
      ({ kit, args }) => args.map((name: string) => kit.dump(name)),
      [stayed, returned],
    );
    expect(second).toEqual(first);
  }
}
