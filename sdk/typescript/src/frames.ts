/** Frames of a terminal's WebSocket: output bytes and JSON messages. */

import { IsoletError } from "./error.js";

/** Size in columns and rows. */
export interface TerminalSize {
  cols: number;
  rows: number;
}

/** A client that is attached to a terminal. */
export interface TerminalClient {
  /** Number of the client, unique within the terminal. */
  client: number;
  /** Name that the client gave. */
  name: string;
  /** `view` cannot send input. */
  mode: "edit" | "view";
  /** Width of its window, if it has one. */
  cols?: number | null;
  /** Height of its window, if it has one. */
  rows?: number | null;
  /** Typed last; the terminal has the size of its window. */
  typing: boolean;
}

/** Exit status of the terminal's program. */
export interface TerminalExit {
  /** Exit code; 128 plus the signal number if a signal ended the program. */
  code: number;
  /** For example `SIGTERM`. */
  signal?: string;
}

/** The terminal that a client is attached to. */
export interface TerminalAttached extends TerminalSize {
  /** Id of this run of the terminal; a reopened terminal gets a new one. */
  terminal: string;
  /** Number of this client. */
  client: number;
  /** This attach opened the terminal. */
  fresh: boolean;
  /** Process id of its program, inside the sandbox. */
  pid: number;
}

/** Bytes that redraw the whole screen and its scrollback after a full reset. */
export interface TerminalSnapshot {
  bytes: Uint8Array;
  /** Bytes of output that the snapshot replaces. */
  missed: number;
}

/** Receives the parsed frames. */
export interface FrameHandler {
  attached(attached: TerminalAttached): void;
  snapshot(snapshot: TerminalSnapshot): void;
  at(offset: number): void;
  output(bytes: Uint8Array): void;
  ready(): void;
  size(size: TerminalSize): void;
  clients(clients: TerminalClient[]): void;
  exit(exit: TerminalExit): void;
  refused(error: IsoletError): void;
}

/** Parser for the frames of one connection. Unknown frames are ignored. */
export class Frames {
  #snapshot: { parts: Uint8Array[]; left: number; missed: number } | undefined;

  constructor(private readonly handler: FrameHandler) {}

  /** Process one message. */
  take(data: string | Uint8Array): void {
    if (typeof data === "string") this.#text(data);
    else this.#bytes(data);
  }

  #bytes(data: Uint8Array): void {
    const snapshot = this.#snapshot;
    if (!snapshot) return this.handler.output(data);
    const part = data.subarray(0, snapshot.left);
    snapshot.parts.push(part);
    snapshot.left -= part.length;
    if (snapshot.left === 0) this.#finishSnapshot();
    if (part.length < data.length) this.handler.output(data.subarray(part.length));
  }

  #finishSnapshot(): void {
    const { parts, missed } = this.#snapshot!;
    this.#snapshot = undefined;
    const bytes = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
    let at = 0;
    for (const part of parts) {
      bytes.set(part, at);
      at += part.length;
    }
    this.handler.snapshot({ bytes, missed });
  }

  #text(text: string): void {
    let frame: { type?: string } & Record<string, unknown>;
    try {
      frame = Object(JSON.parse(text)) as typeof frame;
    } catch {
      return;
    }
    const { type, ...fields } = frame;
    switch (type) {
      case "attached":
        return this.handler.attached(fields as unknown as TerminalAttached);
      case "snapshot":
        this.#snapshot = { parts: [], left: Number(fields["bytes"]), missed: Number(fields["missed"] ?? 0) };
        if (this.#snapshot.left === 0) this.#finishSnapshot();
        return;
      case "at":
        return this.handler.at(Number(fields["offset"]));
      case "ready":
        return this.handler.ready();
      case "size":
        return this.handler.size(fields as unknown as TerminalSize);
      case "clients":
        return this.handler.clients(fields["clients"] as TerminalClient[]);
      case "exit":
        return this.handler.exit(fields as unknown as TerminalExit);
      case "error":
        return this.handler.refused(new IsoletError(0, "refused", String(fields["message"])));
    }
  }
}
