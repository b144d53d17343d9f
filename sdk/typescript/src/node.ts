/** The same for Node, whose WebSockets send the key's header. */

import WebSocket from "ws";
import { refusal } from "./error.js";
import { use, type Socket, type SocketEvents } from "./socket.js";

export * from "./index.js";

/** The longest answer to a refused upgrade that is read, in bytes. */
const REFUSAL_BYTES_MAX = 64 * 1024;

function connect(url: string, headers: Record<string, string>, on: SocketEvents): Socket {
  const socket = new WebSocket(url, { headers, perMessageDeflate: false, handshakeTimeout: 30_000 });
  let over = false;
  let refused = false;
  const closed: SocketEvents["closed"] = (code, refused) => {
    if (over) return;
    over = true;
    on.closed(code, refused);
  };
  socket.on("open", () => over || on.open());
  socket.on("ping", () => over || on.alive?.());
  socket.on("message", (data, binary) => {
    if (over) return;
    // ws gives a Buffer, unless another `binaryType` was set.
    const bytes = data as Buffer;
    on.message(binary ? new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.length) : bytes.toString());
  });
  socket.on("unexpected-response", (_request, response) => {
    refused = true;
    const parts: Buffer[] = [];
    let size = 0;
    response.on("data", (part: Buffer) => {
      if ((size += part.length) <= REFUSAL_BYTES_MAX) parts.push(part);
    });
    response.once("close", () => {
      const answer = new Response(Buffer.concat(parts).toString(), { status: response.statusCode ?? 500 });
      void refusal(answer).then((error) => closed(1006, error));
      socket.terminate();
    });
    response.once("end", () => response.destroy());
    response.once("error", () => response.destroy());
    response.setTimeout(10_000, () => response.destroy());
  });
  // Always followed by `close`, which tells.
  socket.on("error", () => undefined);
  socket.on("close", (code) => refused || closed(code));
  return {
    send: (data) => socket.send(data),
    close: () => {
      over = true;
      socket.resume();
      socket.close();
      // A dead peer answers no close: ws itself waits 30 s, and would hold up the program's end.
      setTimeout(() => socket.terminate(), 1000).unref();
    },
    drop: () => {
      over = true;
      socket.terminate();
    },
    still: (still) => (still ? socket.pause() : socket.resume()),
    get unsent() {
      return socket.bufferedAmount;
    },
  };
}

use({ headers: true, connect });
