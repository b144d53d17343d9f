/** A network between a page and the server that can be cut, stopped and slowed. */

import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Server, type Socket } from "node:net";

interface Pair {
  page: Socket;
  server: Socket;
}

export class Proxy {
  readonly #listener: Server;
  readonly #pairs = new Set<Pair>();
  /** Connections that were ever made. */
  made = 0;
  /** Bytes from the server to the page. */
  down = 0;
  #refuse = false;
  #still = false;
  #cutAt = Infinity;
  #stay = false;

  private constructor(private readonly to: number) {
    this.#listener = createServer((page) => this.#join(page));
  }

  /** In front of the server on a port of this machine. */
  static async before(port: number): Promise<Proxy> {
    const proxy = new Proxy(port);
    proxy.#listener.listen(0, "127.0.0.1");
    await once(proxy.#listener, "listening");
    return proxy;
  }

  get port(): number {
    return (this.#listener.address() as AddressInfo).port;
  }

  /** Connections that stand. */
  get open(): number {
    return this.#pairs.size;
  }

  /** Ends all connections, wherever in a message they are. */
  cut(): void {
    this.#cutAt = Infinity;
    for (const { page, server } of this.#pairs) {
      page.resetAndDestroy();
      server.resetAndDestroy();
    }
    this.#pairs.clear();
  }

  /** Cuts when so many further bytes have gone to the page: what comes with the last is lost. `stay`:
   *  and lets nobody through from then on, until {@link Proxy.go}. */
  cutAfter(bytes: number, stay = false): void {
    this.#cutAt = this.down + bytes;
    this.#stay = stay;
  }

  /** No new connection gets through until {@link Proxy.go}. */
  refuse(): void {
    this.#refuse = true;
  }

  /** Nothing moves, and nobody is told: half-open connections. */
  stall(): void {
    this.#still = true;
    for (const { page, server } of this.#pairs) {
      page.pause();
      server.pause();
    }
  }

  /** All is well again. */
  go(): void {
    this.#refuse = this.#still = false;
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
          to.once("drain", () => this.#still || from.resume());
        }
      });
      from.on("end", () => to.end());
      from.on("close", () => this.#pairs.delete(pair));
      from.on("error", () => to.destroy());
    };
    pass(page, server, false);
    pass(server, page, true);
    if (this.#still) {
      page.pause();
      server.pause();
    }
  }
}
