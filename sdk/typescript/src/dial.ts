/** A TCP connection to a port inside a sandbox. */

import type { Isolet } from "./client.js";
import { IsoletError } from "./error.js";
import { here, type Socket } from "./socket.js";
import { ticket } from "./terminals.js";

/** Goes out at once, in bytes: the server takes no longer message. */
const MESSAGE_BYTES = 256 * 1024;
/** Beyond so many bytes that have not left, or are not read, the other side waits. */
const WAITING_BYTES_MAX = 1024 * 1024;
/** No platform says when what waited has left: it is asked so often, in ms. */
const ASK_MS = 5;

const NORMAL = 1000;

const EOF = JSON.stringify({ type: "eof" });

/** A connection to a program. */
export interface PortConnection {
  /** What the program says, up to its end. In pages what is not read is kept in memory. */
  readable: ReadableStream<Uint8Array>;
  /** What it is told; closing it is this side's end, and the program may go on. */
  writable: WritableStream<Uint8Array>;
  /** Ends both at once. */
  close(): void;
}

/** Connects. @throws `not_listening`: nothing listens there. */
export async function dial(client: Isolet, sandbox: string, path: string, port: number): Promise<PortConnection> {
  const url = new URL(`${client.url.replace(/^http/, "ws")}${path}/tcp/${port}?half=1`);
  const { headers } = here();
  if (!headers) url.searchParams.set("ticket", (await ticket(client, sandbox, { use: "port", port })).ticket);
  return new Promise((done, refused) => new Dialled(url.href, headers ? client.headers() : {}, done, refused));
}

class Dialled {
  #reader!: ReadableStreamDefaultController<Uint8Array>;
  #writer!: WritableStreamDefaultController;
  readonly #socket: Socket;
  // Whether the program, and whoever reads it here, may still go on.
  #open = true;
  #over = false;

  constructor(
    url: string,
    headers: Record<string, string>,
    done: (connection: PortConnection) => void,
    refused: (error: Error) => void,
  ) {
    let connected = false;
    this.#socket = here().connect(url, headers, {
      open: () => {
        connected = true;
        done(this.#streams());
      },
      message: (data) => this.#heard(data),
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
        pull: () => this.#socket.still?.(false),
        cancel: () => this.#end(),
      },
      new ByteLengthQueuingStrategy({ highWaterMark: WAITING_BYTES_MAX }),
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
      while (!this.#over && this.#socket.unsent > WAITING_BYTES_MAX) {
        await new Promise((wake) => setTimeout(wake, ASK_MS));
      }
      if (this.#over) return;
      this.#socket.send(bytes.slice(at, at + MESSAGE_BYTES));
    }
  }

  #heard(data: string | Uint8Array): void {
    if (!this.#open) return;
    // The only text that there is: the program's end.
    if (typeof data === "string") return this.#finish();
    this.#reader.enqueue(data);
    if ((this.#reader.desiredSize ?? 0) <= 0) this.#socket.still?.(true);
  }

  #finish(): void {
    if (this.#open) this.#reader.close();
    this.#open = false;
  }

  #closed(code: number): void {
    this.#over = true;
    // Both sides have ended: that is not said in a frame.
    if (code === NORMAL) return this.#finish();
    const error = new IsoletError(0, "cut", `the connection to the port ended (${code})`);
    if (this.#open) this.#reader.error(error);
    this.#writer.error(error);
    this.#open = false;
  }

  #end(): void {
    if (this.#over) return;
    this.#socket.close();
    this.#over = true;
    const error = new IsoletError(0, "closed", "the connection was closed here");
    if (this.#open) {
      this.#open = false;
      // A reader that has gone takes no error.
      try {
        this.#reader.error(error);
      } catch {
        return;
      }
    }
    this.#writer.error(error);
  }
}
