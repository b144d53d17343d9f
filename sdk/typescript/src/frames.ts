/** What a terminal's socket says: bytes, and JSON about them. */

import { IsoletError } from "./error.js";

/** How many columns and rows. */
export interface TerminalSize {
  cols: number;
  rows: number;
}

/** Who is attached. */
export interface TerminalClient {
  /** Its number among the terminal's clients. */
  client: number;
  /** As it named itself. */
  name: string;
  /** It types, or it only looks. */
  mode: "edit" | "view";
  /** Its own window, where it has one. */
  cols?: number | null;
  rows?: number | null;
  /** It typed last: the terminal has its size. */
  typing: boolean;
}

/** How the terminal's program ended. */
export interface TerminalExit {
  /** 128 and the signal where a signal ended it. */
  code: number;
  /** As `SIGTERM`. */
  signal?: string;
}

/** What a connection has led to. */
export interface TerminalAttached extends TerminalSize {
  /** Names this run of the terminal: the next one has another. */
  terminal: string;
  /** The number of this client. */
  client: number;
  /** It was opened by this attach. */
  fresh: boolean;
  /** Process id of its program, inside. */
  pid: number;
}

/** Bytes that draw the whole screen and its scrollback, from a full reset on. */
export interface TerminalSnapshot {
  bytes: Uint8Array;
  /** Bytes of output that are not sent because of it. */
  missed: number;
}

/** Hears what a socket says. */
export interface Hearer {
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

/** The frames of one connection, in order. What is not understood is passed over. */
export class Frames {
  #drawing: { parts: Uint8Array[]; left: number; missed: number } | undefined;

  constructor(private readonly to: Hearer) {}

  /** One message. */
  take(data: string | Uint8Array): void {
    if (typeof data === "string") this.#text(data);
    else this.#bytes(data);
  }

  #bytes(data: Uint8Array): void {
    const drawing = this.#drawing;
    if (!drawing) return this.to.output(data);
    const part = data.subarray(0, drawing.left);
    drawing.parts.push(part);
    drawing.left -= part.length;
    if (drawing.left === 0) this.#drawn();
    if (part.length < data.length) this.to.output(data.subarray(part.length));
  }

  #drawn(): void {
    const { parts, missed } = this.#drawing!;
    this.#drawing = undefined;
    const bytes = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
    let at = 0;
    for (const part of parts) {
      bytes.set(part, at);
      at += part.length;
    }
    this.to.snapshot({ bytes, missed });
  }

  #text(text: string): void {
    let frame: { type?: string } & Record<string, unknown>;
    try {
      frame = Object(JSON.parse(text)) as typeof frame;
    } catch {
      return;
    }
    const { type, ...told } = frame;
    switch (type) {
      case "attached":
        return this.to.attached(told as unknown as TerminalAttached);
      case "snapshot":
        this.#drawing = { parts: [], left: Number(told["bytes"]), missed: Number(told["missed"] ?? 0) };
        if (this.#drawing.left === 0) this.#drawn();
        return;
      case "at":
        return this.to.at(Number(told["offset"]));
      case "ready":
        return this.to.ready();
      case "size":
        return this.to.size(told as unknown as TerminalSize);
      case "clients":
        return this.to.clients(told["clients"] as TerminalClient[]);
      case "exit":
        return this.to.exit(told as unknown as TerminalExit);
      case "error":
        return this.to.refused(new IsoletError(0, "refused", String(told["message"])));
    }
  }
}
