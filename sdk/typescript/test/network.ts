/** A TCP relay between client and server whose connections tests can cut. */

import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Socket } from "node:net";

interface Network {
  url: string;
  cut: () => void;
  close: () => void;
  /** Number of connections so far. */
  connections: () => number;
}

/** Start a relay to a server. */
export async function network(to: string): Promise<Network> {
  const open = new Set<Socket>();
  let connections = 0;
  const port = Number(new URL(to).port);
  const listener = createServer((near) => {
    connections++;
    const far = connect(port, "127.0.0.1");
    for (const [from, into] of [
      [near, far],
      [far, near],
    ] as const) {
      open.add(from);
      from.pipe(into);
      from.on("error", () => into.destroy());
      from.on("close", () => open.delete(from));
    }
  }).listen(0, "127.0.0.1");
  await once(listener, "listening");
  const cut = (): void => open.forEach((socket) => socket.resetAndDestroy());
  const { port: own } = listener.address() as AddressInfo;
  const close = (): void => {
    cut();
    listener.close();
  };
  return { url: `http://127.0.0.1:${own}`, cut, close, connections: () => connections };
}
