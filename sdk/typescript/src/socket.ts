/** WebSockets, as the platform has them. */

import { IsoletError } from "./error.js";

/** What a socket tells. Nothing is told after its `close`. */
export interface SocketEvents {
  open(): void;
  /** The server has asked whether somebody is there, where the platform shows that. */
  alive?(): void;
  message(data: string | Uint8Array): void;
  /** It is no more. `refused`: the answer to the upgrade, where the platform shows it. */
  closed(code: number, refused?: IsoletError): void;
}

/** One connection. */
export interface Socket {
  send(data: string | Uint8Array): void;
  close(): void;
  /** Lets go of it without a goodbye, where the platform can. */
  drop?(): void;
  /** Bytes that were sent and have not left. */
  readonly unsent: number;
  /** Reads nothing more, or again, where the platform can: what is not read waits at the server. */
  still?(still: boolean): void;
}

/** How this platform makes connections. */
export interface Platform {
  /** It can send the key's header; otherwise a ticket is taken. */
  readonly headers: boolean;
  connect(url: string, headers: Record<string, string>, on: SocketEvents): Socket;
}

let platform: Platform = { headers: false, connect: page };

/** The platform's way. */
export function here(): Platform {
  return platform;
}

/** Takes another way for all connections to come. */
export function use(other: Platform): void {
  platform = other;
}

/** A page's own `WebSocket`, which sends no headers and does not say why it was refused. */
function page(url: string, _headers: Record<string, string>, on: SocketEvents): Socket {
  if (typeof WebSocket === "undefined") {
    throw new IsoletError(0, "no_websocket", "this platform has no WebSocket", "use Node, or a browser");
  }
  const socket = new WebSocket(url);
  socket.binaryType = "arraybuffer";
  socket.onopen = () => on.open();
  socket.onmessage = ({ data }) => on.message(data instanceof ArrayBuffer ? new Uint8Array(data) : String(data));
  socket.onclose = ({ code }) => on.closed(code);
  return {
    send: (data) => socket.send(data as Uint8Array<ArrayBuffer> | string),
    close: () => {
      socket.onopen = socket.onmessage = socket.onclose = null;
      socket.close();
    },
    get unsent() {
      return socket.bufferedAmount;
    },
  };
}
