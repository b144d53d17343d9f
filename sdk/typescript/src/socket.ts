/** WebSockets of the platform. */

import { IsoletError } from "./error.js";

/** Events of a socket. None follow after `closed`. */
export interface SocketEvents {
  open(): void;
  /** The server sent a ping, if the platform reports pings. */
  alive?(): void;
  message(data: string | Uint8Array): void;
  /**
   * The connection ended.
   *
   * @param refused error of a refused upgrade, if the platform reports it.
   */
  closed(code: number, refused?: IsoletError): void;
}

/** A connection. */
export interface Socket {
  send(data: string | Uint8Array): void;
  close(): void;
  /** Drop the connection without a close handshake, if the platform can. */
  abort?(): void;
  /** Number of buffered bytes that were not sent yet. */
  readonly unsent: number;
  /** Stop or resume reading, if the platform can. Unread data waits at the server. */
  setPaused?(setPaused: boolean): void;
}

/** How the platform opens connections. */
export interface Platform {
  /** It can send the key in a header; otherwise a ticket is needed. */
  readonly headers: boolean;
  connect(url: string, headers: Record<string, string>, on: SocketEvents): Socket;
}

let platform: Platform = { headers: false, connect: page };

/** The platform for new connections. */
export function currentPlatform(): Platform {
  return platform;
}

/** Replace the platform for new connections. */
export function setPlatform(other: Platform): void {
  platform = other;
}

/** The `WebSocket` of web pages, which cannot send headers and does not report why an upgrade was refused. */
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
