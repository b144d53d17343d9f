/** Log of a session's shell: its commands with output and exit codes. */

import { signal } from "@preact/signals";
import { AnsiReader, same } from "../../lib/ansi";
import { api, at } from "../../lib/api";
import { recordLosses } from "../../lib/actions";
import type { Part } from "../../parts/output";

/** A command. */
export interface Command {
  /** Command id; prefixed with the client's id for commands of other clients. */
  id: string;
  /** Unique number of the entry; the server may reuse command ids. */
  number: number;
  /** Command text; empty if the server did not report it. */
  text: string;
  mine: boolean;
  began: number;
  parts: Part[];
  /** Readers of both streams, which know the current colours. */
  readers: { out: AnsiReader; err: AnsiReader };
  /** Number of characters in `parts`. */
  size: number;
  /** Part of the output is not shown. */
  cut: boolean;
  exit?: { code: number; ms: number; mark: string };
  /** Why the command was not run. */
  refused?: string;
}

type Frame = {
  type: string;
  id?: string;
  command?: string;
  data?: string;
  code?: number;
  signal?: number | string;
  cause?: string;
  duration_ms?: number;
  message?: string;
  [mark: string]: unknown;
};

const COMMANDS_MAX = 400;
const OUTPUT_CHARS_MAX = 200_000;
const RETRY_DELAYS_MS = [400, 1000, 2000, 5000];

/** Log of one session, followed until it is closed. */
export class ShellLog {
  /** Incremented on every change; components read it to render again. */
  readonly version = signal(0);
  readonly state = signal<"connecting" | "live" | "lost">("connecting");
  commands: Command[] = [];
  #socket: WebSocket | undefined;
  #closed = false;
  #attempts = 0;
  #number = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #renderScheduled = false;
  // Prefix of command ids, so that they differ from those of an earlier connection.
  readonly #idPrefix = Math.random().toString(36).slice(2, 8);

  constructor(
    readonly sandbox: string,
    readonly session: string,
  ) {
    void this.#connect();
  }

  /** Stop following. The shell keeps running. */
  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
    this.#socket?.close();
  }

  /** Run a command after those that wait. */
  run(text: string): boolean {
    if (this.#socket?.readyState !== WebSocket.OPEN) return false;
    const id = `${this.#idPrefix}-${++this.#number}`;
    this.#push({ id, text, mine: true });
    this.#socket.send(JSON.stringify({ type: "shell_run", id, command: text }));
    return true;
  }

  /** Cancel a command of this page. The shell stays. */
  cancel({ id }: Command): void {
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify({ type: "shell_cancel", id }));
  }

  async #connect(): Promise<void> {
    try {
      const json = { sandbox: this.sandbox, session: this.session, use: "shell" };
      const { ticket } = await api().json<{ ticket: string }>("/v1/tickets", { json });
      if (this.#closed) return;
      const all = { session: this.session, watch: "1", starts: "1", since: "0,0,0", ticket };
      const url = `${location.origin.replace(/^http/, "ws")}${at(this.sandbox, "shell")}?${new URLSearchParams(all)}`;
      const socket = new WebSocket(url);
      this.#socket = socket;
      socket.onopen = () => {
        // The server replays everything it has.
        this.commands = [];
        this.#attempts = 0;
        this.state.value = "live";
        this.#scheduleRender();
      };
      socket.onmessage = ({ data }) => typeof data === "string" && this.#onFrame(JSON.parse(data) as Frame);
      socket.onclose = () => this.#lost();
    } catch {
      this.#lost();
    }
  }

  #lost(): void {
    if (this.#closed) return;
    this.state.value = "lost";
    this.#timer = setTimeout(() => void this.#connect(), RETRY_DELAYS_MS[Math.min(this.#attempts++, RETRY_DELAYS_MS.length - 1)]);
  }

  #push(fields: Pick<Command, "id" | "text" | "mine">): Command {
    const command: Command = { ...fields, number: ++this.#number, began: Date.now(), parts: [], readers: { out: new AnsiReader(), err: new AnsiReader() }, size: 0, cut: false };
    this.commands.push(command);
    if (this.commands.length > COMMANDS_MAX) this.commands.shift();
    this.#scheduleRender();
    return command;
  }

  /** The latest unfinished command with this id. */
  #commandFor(id: string): Command {
    const last = this.commands.findLast((one) => one.id === id && !one.exit && !one.refused);
    return last ?? this.#push({ id, text: id === "" ? "background jobs" : "", mine: false });
  }

  #onFrame(frame: Frame): void {
    const id = frame.id ?? "";
    if (frame.type === "shell_start") {
      const known = this.commands.findLast((one) => one.id === id && !one.exit);
      if (known) {
        known.text = frame.command || known.text;
        known.began = Date.now();
      } else this.#push({ id, text: frame.command ?? "", mine: !id.includes("/") });
    } else if (frame.type === "shell_out" || frame.type === "shell_err") {
      this.#appendOutput(this.#commandFor(id), frame.type === "shell_err", frame.data ?? "");
    } else if (frame.type === "shell_exit") {
      const marks = ["timed_out", "cancelled", "oom", "fresh"].filter((mark) => frame[mark] === true);
      const mark = marks.join(", ").replaceAll("_", " ");
      this.#commandFor(id).exit = { code: frame.code ?? 0, ms: frame.duration_ms ?? 0, mark };
      recordLosses(this.sandbox, frame);
    } else if (frame.type === "shell_error" && id !== "") {
      this.#commandFor(id).refused = frame.message ?? "refused";
    } else if (frame.type === "shell_gap") {
      const last = this.commands.at(-1);
      if (last) last.cut = true;
    } else if (frame.type === "shell_closed") {
      const how = frame.cause ?? (frame.signal === undefined ? `code ${frame.code}` : `signal ${frame.signal}`);
      const end = this.#push({ id: "", text: "the shell has exited", mine: false });
      end.exit = { code: frame.code ?? 0, ms: 0, mark: how };
    }
    this.#scheduleRender();
  }

  #appendOutput(command: Command, err: boolean, text: string): void {
    for (const { text: shown, style } of (err ? command.readers.err : command.readers.out).read(text)) {
      const last = command.parts.at(-1);
      if (last?.err === err && last.text.length < 16_384 && same(last.style, style)) last.text += shown;
      else command.parts.push({ err, text: shown, style });
      command.size += shown.length;
    }
    while (command.size > OUTPUT_CHARS_MAX && command.parts.length > 1) {
      command.size -= command.parts.shift()!.text.length;
      command.cut = true;
    }
  }

  #scheduleRender(): void {
    if (this.#renderScheduled) return;
    this.#renderScheduled = true;
    requestAnimationFrame(() => {
      this.#renderScheduled = false;
      this.version.value++;
    });
  }
}
