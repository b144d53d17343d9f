/** Entry point for Node, whose WebSockets can send the key in a header. */

import WebSocket from "ws";
import { errorFromResponse } from "./error.js";
import { setPlatform, type Socket, type SocketEvents } from "./socket.js";

export * from "./index.js";

/** Limit on the body of a refused upgrade, in bytes. */
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
    // ws passes a Buffer unless another `binaryType` is set.
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
      void errorFromResponse(answer).then((error) => closed(1006, error));
      socket.terminate();
    });
    response.once("end", () => response.destroy());
    response.once("error", () => response.destroy());
    response.setTimeout(10_000, () => response.destroy());
  });
  // Always followed by `close`, which reports the loss.
  socket.on("error", () => undefined);
  socket.on("close", (code) => refused || closed(code));
  return {
    send: (data) => socket.send(data),
    close: () => {
      over = true;
      socket.resume();
      socket.close();
      // A dead peer does not answer a close frame. ws waits 30 s for it, which would delay the program's
      // exit.
      setTimeout(() => socket.terminate(), 1000).unref();
    },
    abort: () => {
      over = true;
      socket.terminate();
    },
    setPaused: (setPaused) => (setPaused ? socket.pause() : socket.resume()),
    get unsent() {
      return socket.bufferedAmount;
    },
  };
}

setPlatform({ headers: true, connect });
