/** A session's shell, watched: which commands ran in it, what they said, how they ended. */

import { signal } from "@preact/signals";
import { api, at } from "../lib/api";
import { heardLost } from "../lib/actions";

/** One command. */
export interface Command {
  /** Its id, with its owner's where it is another client's. */
  id: string;
  /** Counts the commands that were seen; two may have one id, one after the other. */
  number: number;
  /** What was run; empty where that was not told. */
  text: string;
  mine: boolean;
  began: number;
  parts: { err: boolean; text: string }[];
  /** Characters in `parts`. */
  size: number;
  /** Something of its output is not shown. */
  cut: boolean;
  exit?: { code: number; ms: number; mark: string };
  /** Why it was not run. */
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
const AGAIN_MS = [400, 1000, 2000, 5000];

/** The log of one session, followed until it is closed. */
export class ShellLog {
  /** Counts what changed; whoever draws reads it. */
  readonly version = signal(0);
  readonly state = signal<"connecting" | "live" | "lost">("connecting");
  commands: Command[] = [];
  #socket: WebSocket | undefined;
  #ended = false;
  #tries = 0;
  #number = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #drawn = false;
  // Whose ids these are: they must not meet those of this page's earlier connection.
  readonly #mark = Math.random().toString(36).slice(2, 8);

  constructor(
    readonly sandbox: string,
    readonly session: string,
  ) {
    void this.#connect();
  }

  /** Ends the watching; the shell goes on. */
  close(): void {
    this.#ended = true;
    clearTimeout(this.#timer);
    this.#socket?.close();
  }

  /** Runs a command behind those that wait. */
  run(text: string): boolean {
    if (this.#socket?.readyState !== WebSocket.OPEN) return false;
    const id = `${this.#mark}-${++this.#number}`;
    this.#push({ id, text, mine: true });
    this.#socket.send(JSON.stringify({ type: "shell_run", id, command: text }));
    return true;
  }

  /** Ends one of this page's commands; the shell stays. */
  cancel({ id }: Command): void {
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify({ type: "shell_cancel", id }));
  }

  async #connect(): Promise<void> {
    try {
      const json = { sandbox: this.sandbox, session: this.session, use: "shell" };
      const { ticket } = await api().json<{ ticket: string }>("/v1/tickets", { json });
      if (this.#ended) return;
      const all = { session: this.session, watch: "1", starts: "1", since: "0,0,0", ticket };
      const url = `${location.origin.replace(/^http/, "ws")}${at(this.sandbox, "shell")}?${new URLSearchParams(all)}`;
      const socket = new WebSocket(url);
      this.#socket = socket;
      socket.onopen = () => {
        // All that is held comes again.
        this.commands = [];
        this.#tries = 0;
        this.state.value = "live";
        this.#changed();
      };
      socket.onmessage = ({ data }) => typeof data === "string" && this.#heard(JSON.parse(data) as Frame);
      socket.onclose = () => this.#lost();
    } catch {
      this.#lost();
    }
  }

  #lost(): void {
    if (this.#ended) return;
    this.state.value = "lost";
    this.#timer = setTimeout(() => void this.#connect(), AGAIN_MS[Math.min(this.#tries++, AGAIN_MS.length - 1)]);
  }

  #push(told: Pick<Command, "id" | "text" | "mine">): Command {
    const command: Command = { ...told, number: ++this.#number, began: Date.now(), parts: [], size: 0, cut: false };
    this.commands.push(command);
    if (this.commands.length > COMMANDS_MAX) this.commands.shift();
    this.#changed();
    return command;
  }

  /** The command that is meant: the last of this id, where that has not ended. */
  #of(id: string): Command {
    const last = this.commands.findLast((one) => one.id === id && !one.exit && !one.refused);
    return last ?? this.#push({ id, text: id === "" ? "background jobs" : "", mine: false });
  }

  #heard(frame: Frame): void {
    const id = frame.id ?? "";
    if (frame.type === "shell_start") {
      const known = this.commands.findLast((one) => one.id === id && !one.exit);
      if (known) [known.text, known.began] = [frame.command || known.text, Date.now()];
      else this.#push({ id, text: frame.command ?? "", mine: !id.includes("/") });
    } else if (frame.type === "shell_out" || frame.type === "shell_err") {
      this.#said(this.#of(id), frame.type === "shell_err", frame.data ?? "");
    } else if (frame.type === "shell_exit") {
      const marks = ["timed_out", "cancelled", "oom", "fresh"].filter((mark) => frame[mark] === true);
      const mark = marks.join(", ").replaceAll("_", " ");
      this.#of(id).exit = { code: frame.code ?? 0, ms: frame.duration_ms ?? 0, mark };
      heardLost(this.sandbox, frame);
    } else if (frame.type === "shell_error" && id !== "") {
      this.#of(id).refused = frame.message ?? "refused";
    } else if (frame.type === "shell_gap") {
      const last = this.commands.at(-1);
      if (last) last.cut = true;
    } else if (frame.type === "shell_closed") {
      const how = frame.cause ?? (frame.signal === undefined ? `code ${frame.code}` : `signal ${frame.signal}`);
      const end = this.#push({ id: "", text: "the shell has ended", mine: false });
      end.exit = { code: frame.code ?? 0, ms: 0, mark: how };
    }
    this.#changed();
  }

  #said(command: Command, err: boolean, text: string): void {
    const shown = text.replace(ESCAPES, "");
    const last = command.parts.at(-1);
    if (last?.err === err && last.text.length < 16_384) last.text += shown;
    else command.parts.push({ err, text: shown });
    command.size += shown.length;
    while (command.size > OUTPUT_CHARS_MAX && command.parts.length > 1) {
      command.size -= command.parts.shift()!.text.length;
      command.cut = true;
    }
  }

  #changed(): void {
    if (this.#drawn) return;
    this.#drawn = true;
    requestAnimationFrame(() => {
      this.#drawn = false;
      this.version.value++;
    });
  }
}

/** What terminals would obey and a page only shows: colours, titles, moves of the cursor. */
const ESCAPES = /\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)|[@-Z\\-_])|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]/g;
