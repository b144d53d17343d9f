/** TCP proxy between a page and the server. Tests can cut, pause and limit its connections. */

import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Server, type Socket } from "node:net";

interface Pair {
  page: Socket;
  server: Socket;
}

export class Proxy {
  readonly #listener: Server;
  readonly #pairs = new Set<Pair>();
  /** Number of connections so far. */
  made = 0;
  /** Bytes sent from the server to the page. */
  down = 0;
  #refuse = false;
  #stalled = false;
  #cutAt = Infinity;
  #stay = false;

  private constructor(private readonly to: number) {
    this.#listener = createServer((page) => this.#join(page));
  }

  /** Start a proxy in front of a local port. */
  static async before(port: number): Promise<Proxy> {
    const proxy = new Proxy(port);
    proxy.#listener.listen(0, "127.0.0.1");
    await once(proxy.#listener, "listening");
    return proxy;
  }

  get port(): number {
    return (this.#listener.address() as AddressInfo).port;
  }

  /** Number of open connections. */
  get open(): number {
    return this.#pairs.size;
  }

  /** Reset all connections, even in the middle of a message. */
  cut(): void {
    this.#cutAt = Infinity;
    for (const { page, server } of this.#pairs) {
      page.resetAndDestroy();
      server.resetAndDestroy();
    }
    this.#pairs.clear();
  }

  /** Cut after this many further bytes to the page. `stay`: refuse new connections until {@link Proxy.go}. */
  cutAfter(bytes: number, stay = false): void {
    this.#cutAt = this.down + bytes;
    this.#stay = stay;
  }

  /** Refuse new connections until {@link Proxy.go}. */
  refuse(): void {
    this.#refuse = true;
  }

  /** Stop relaying without closing: half-open connections. */
  stall(): void {
    this.#stalled = true;
    for (const { page, server } of this.#pairs) {
      page.pause();
      server.pause();
    }
  }

  /** Resume normal operation. */
  go(): void {
    this.#refuse = this.#stalled = false;
    for (const { page, server } of this.#pairs) {
      page.resume();
      server.resume();
    }
  }

  close(): void {
    this.cut();
    this.#listener.close();
  }

  #join(page: Socket): void {
    if (this.#refuse) return void page.resetAndDestroy();
    this.made++;
    const server = connect(this.to, "127.0.0.1");
    const pair = { page, server };
    this.#pairs.add(pair);
    const pass = (from: Socket, to: Socket, down: boolean): void => {
      from.setNoDelay(true);
      from.on("data", (data) => {
        if (down && this.down + data.length >= this.#cutAt) {
          this.#refuse ||= this.#stay;
          to.write(data.subarray(0, this.#cutAt - this.down), () => this.cut());
          return;
        }
        if (down) this.down += data.length;
        if (!to.write(data)) {
          from.pause();
          to.once("drain", () => this.#stalled || from.resume());
        }
      });
      from.on("end", () => to.end());
      from.on("close", () => this.#pairs.delete(pair));
      from.on("error", () => to.destroy());
    };
    pass(page, server, false);
    pass(server, page, true);
    if (this.#stalled) {
      page.pause();
      server.pause();
    }
  }
}
