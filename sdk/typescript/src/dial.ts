/** TCP connection to a port in a sandbox. */

import type { Isolet } from "./client.js";
import { IsoletError } from "./error.js";
import { currentPlatform, type Socket } from "./socket.js";
import { ticket } from "./terminals.js";

/** The server's limit on a message, in bytes. */
const MESSAGE_BYTES = 256 * 1024;
/** Limit on buffered bytes in each direction; the sender waits beyond it. */
const BUFFERED_BYTES_MAX = 1024 * 1024;
/** Polling interval while the send buffer is full: no platform reports when it drains. */
const POLL_MS = 5;

/** Close code after both sides have closed the connection. */
const CLOSE_NORMAL = 1000;

const EOF = JSON.stringify({ type: "eof" });

/** A TCP connection to a program in the sandbox. */
export interface PortConnection {
  /** Bytes from the program. In web pages, unread bytes are buffered in memory. */
  readable: ReadableStream<Uint8Array>;
  /** Bytes to the program. Closing it closes only this direction. */
  writable: WritableStream<Uint8Array>;
  /** Close both directions. */
  close(): void;
}

/**
 * Connect to a port.
 *
 * @throws {@link IsoletError} `not_listening`: no program listens on the port.
 */
export async function dial(client: Isolet, sandbox: string, path: string, port: number): Promise<PortConnection> {
  const url = new URL(`${client.url.replace(/^http/, "ws")}${path}/tcp/${port}?half=1`);
  const { headers } = currentPlatform();
  if (!headers) url.searchParams.set("ticket", (await ticket(client, sandbox, { use: "port", port })).ticket);
  return new Promise((done, refused) => new PortSocket(url.href, headers ? client.headers() : {}, done, refused));
}

class PortSocket {
  #reader!: ReadableStreamDefaultController<Uint8Array>;
  #writer!: WritableStreamDefaultController;
  readonly #socket: Socket;
  // The program, and the reader here, may still continue.
  #open = true;
  #finished = false;

  constructor(
    url: string,
    headers: Record<string, string>,
    done: (connection: PortConnection) => void,
    refused: (error: Error) => void,
  ) {
    let connected = false;
    this.#socket = currentPlatform().connect(url, headers, {
      open: () => {
        connected = true;
        done(this.#streams());
      },
      message: (data) => this.#receive(data),
      closed: (code, error) => {
        if (connected) this.#closed(code);
        else refused(error ?? new IsoletError(0, "unreachable", "the port cannot be reached"));
      },
    });
  }

  #streams(): PortConnection {
    const readable = new ReadableStream<Uint8Array>(
      {
        start: (controller) => void (this.#reader = controller),
        pull: () => this.#socket.setPaused?.(false),
        cancel: () => this.#end(),
      },
      new ByteLengthQueuingStrategy({ highWaterMark: BUFFERED_BYTES_MAX }),
    );
    const writable = new WritableStream<Uint8Array>({
      start: (controller) => void (this.#writer = controller),
      write: (bytes) => this.#send(bytes),
      close: () => this.#socket.send(EOF),
      abort: () => this.#end(),
    });
    return { readable, writable, close: () => this.#end() };
  }

  async #send(bytes: Uint8Array): Promise<void> {
    for (let at = 0; at < bytes.length; at += MESSAGE_BYTES) {
      while (!this.#finished && this.#socket.unsent > BUFFERED_BYTES_MAX) {
        await new Promise((wake) => setTimeout(wake, POLL_MS));
      }
      if (this.#finished) return;
      this.#socket.send(bytes.slice(at, at + MESSAGE_BYTES));
    }
  }

  #receive(data: string | Uint8Array): void {
    if (!this.#open) return;
    // The only text message announces the end of the program's output.
    if (typeof data === "string") return this.#finish();
    this.#reader.enqueue(data);
    if ((this.#reader.desiredSize ?? 0) <= 0) this.#socket.setPaused?.(true);
  }

  #finish(): void {
    if (this.#open) this.#reader.close();
    this.#open = false;
  }

  #closed(code: number): void {
    this.#finished = true;
    // Both sides have closed: the server sends no separate frame for the end.
    if (code === CLOSE_NORMAL) return this.#finish();
    const error = new IsoletError(0, "cut", `the connection to the port was lost (${code})`);
    if (this.#open) this.#reader.error(error);
    this.#writer.error(error);
    this.#open = false;
  }

  #end(): void {
    if (this.#finished) return;
    this.#socket.close();
    this.#finished = true;
    const error = new IsoletError(0, "closed", "the connection was closed by this client");
    if (this.#open) {
      this.#open = false;
      // A cancelled reader accepts no error.
      try {
        this.#reader.error(error);
      } catch {
        return;
      }
    }
    this.#writer.error(error);
  }
}
