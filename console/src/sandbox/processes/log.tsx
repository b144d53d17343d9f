/** Log of one background process, followed while it runs. */

import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { api, at, describeError, type Sandbox } from "../../lib/api";
import { AnsiReader, same } from "../../lib/ansi";
import { now } from "../../lib/clock";
import { formatDuration, moment, roughDuration } from "../../lib/format";
import { useLoaded } from "../../lib/load";
import { attempt } from "../../lib/notice";
import { go, link } from "../../lib/route";
import { followStream } from "../../lib/sse";
import { Button } from "../../parts/button";
import { Output, type Part } from "../../parts/output";
import { Show } from "../../parts/show";
import { Loading, LoadError } from "../../parts/state";
import { end, openSignal, remove } from "./actions";
import { outcome, type ProcessInfo } from "./api";

/** Limit on displayed output. */
const CHARS_MAX = 1_000_000;
/** With exact bytes, since an event can end within a character. */
const EXACT = "text/event-stream; encoding=base64";

/** The log. */
export function Log({ of: sandbox, id }: { of: Sandbox; id: string }): JSX.Element {
  const process = useLoaded((signal) => api().json<ProcessInfo>(at(sandbox.id, "processes", id), { signal }), [sandbox.id, id], {
    everyMs: 5000,
    on: (event) => event.sandbox === sandbox.id && event.kind.startsWith("process_"),
  });
  return (
    <div class="process">
      <a class="back" href={link("sandboxes", sandbox.id, "processes")}>
        ← All processes
      </a>
      <Show of={process} rows={6}>
        {(of) => (
          <>
            <ProcessHeader sandbox={sandbox.id} of={of} again={process.again} />
            <Lines sandbox={sandbox.id} id={id} />
            {of.stdin && of.status === "running" && <Stdin sandbox={sandbox.id} id={id} />}
          </>
        )}
      </Show>
    </div>
  );
}

function ProcessHeader({ sandbox, of, again }: { sandbox: string; of: ProcessInfo; again: () => Promise<void> }): JSX.Element {
  const { text, bad } = outcome(of);
  const runs = of.status === "running";
  return (
    <header class="subbar">
      <h2 class="mono">{of.id}</h2>
      <span class={`state ${runs ? "running" : bad ? "failed" : "closed"}`}>
        <i aria-hidden="true" />
        {text}
      </span>
      <span class="dim grow" title={`started ${moment(of.started_at_ms)}`}>
        {runs ? `for ${roughDuration(now.value - of.started_at_ms)}` : of.duration_ms === null ? "" : `after ${formatDuration(of.duration_ms)}`}
        {of.pid !== null && runs && `, pid ${of.pid}`}
      </span>
      {runs && (
        <>
          <Button changes onClick={() => openSignal(sandbox, of)}>
            Signal
          </Button>
          <Button icon="stop" changes onClick={() => end(sandbox, of, again)}>
            End
          </Button>
        </>
      )}
      <Button
        icon="trash"
        kind="quiet"
        changes
        label={`Remove ${of.id}`}
        onClick={() => remove(sandbox, of, async () => go("sandboxes", sandbox, "processes"))}
      />
      <code class="command-text">{of.command}</code>
    </header>
  );
}

interface Lines {
  parts: Part[];
  chars: number;
  /** Bytes that the server no longer has, or that are not shown. */
  missed: boolean;
}

function useLog(sandbox: string, id: string): { lines: Lines; version: number; loaded: boolean; wrong: ReturnType<typeof describeError> | undefined } {
  const [version, setVersion] = useState(0);
  const [loaded, setLoaded] = useState(false);
  const [wrong, setWrong] = useState<ReturnType<typeof describeError>>();
  const lines = useRef<Lines>({ parts: [], chars: 0, missed: false });
  useEffect(() => {
    const ends = new AbortController();
    const decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() };
    const readers = { stdout: new AnsiReader(), stderr: new AnsiReader() };
    const all: Lines = { parts: [], chars: 0, missed: false };
    lines.current = all;
    let frame = 0;
    const draw = (): void => {
      if (frame !== 0) return;
      frame = requestAnimationFrame(() => {
        frame = 0;
        setVersion((n) => n + 1);
      });
    };
    const follow = async (): Promise<void> => {
      const path = at(sandbox, "processes", id, "logs");
      const options = { signal: ends.signal, accept: EXACT, last: "exit", back: () => setLoaded(true) };
      for await (const { kind, data } of followStream(path, options)) {
        if (kind === "gap") all.missed = true;
        if (kind !== "stdout" && kind !== "stderr") continue;
        const bytes = Uint8Array.from(atob(String(data["data_b64"])), (char) => char.charCodeAt(0));
        append(all, kind === "stderr", readers[kind], decoders[kind].decode(bytes, { stream: true }));
        draw();
      }
      draw();
    };
    follow().catch((error: unknown) => !ends.signal.aborted && setWrong(describeError(error)));
    return () => {
      ends.abort();
      cancelAnimationFrame(frame);
    };
  }, [sandbox, id]);
  return { lines: lines.current, version, loaded, wrong };
}

function append(to: Lines, err: boolean, reader: AnsiReader, data: string): void {
  for (const { text, style } of reader.read(data)) {
    const last = to.parts.at(-1);
    if (last?.err === err && last.text.length < 16_384 && same(last.style, style)) last.text += text;
    else to.parts.push({ err, text, style });
    to.chars += text.length;
  }
  while (to.chars > CHARS_MAX && to.parts.length > 1) {
    to.chars -= to.parts.shift()!.text.length;
    to.missed = true;
  }
}

function Lines({ sandbox, id }: { sandbox: string; id: string }): JSX.Element {
  const { lines, version, loaded, wrong } = useLog(sandbox, id);
  const box = useRef<HTMLPreElement>(null);
  const follows = useRef(true);
  useLayoutEffect(() => {
    if (follows.current && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [version, loaded]);
  if (wrong) return <LoadError {...wrong} />;
  if (!loaded) return <Loading rows={6} />;
  return (
    <pre
      class="output whole"
      ref={box}
      tabIndex={0}
      role="log"
      aria-label={`Log of ${id}`}
      onScroll={({ currentTarget: at }) => (follows.current = at.scrollHeight - at.scrollTop - at.clientHeight < 40)}
    >
      {lines.missed && <span class="dim">… earlier output is not stored{"\n"}</span>}
      {lines.parts.length === 0 && <span class="dim">No output yet.</span>}
      <Output parts={lines.parts} version={version} />
    </pre>
  );
}

function Stdin({ sandbox, id }: { sandbox: string; id: string }): JSX.Element {
  const [text, setText] = useState("");
  const send = async (json: Record<string, unknown>): Promise<void> => {
    const done = await attempt("Could not write to standard input", () => api().send(at(sandbox, "processes", id, "stdin"), { json }));
    if (done) setText("");
  };
  return (
    <form
      class="stdin"
      onSubmit={(event) => {
        event.preventDefault();
        void send({ data: `${text}\n` });
      }}
    >
      <input aria-label="Line for standard input" placeholder="Line for standard input" class="mono" value={text} autoComplete="off" spellcheck={false} onInput={(event) => setText(event.currentTarget.value)} />
      <Button submit kind="main" changes>
        Send
      </Button>
      <Button changes onClick={() => void send({ eof: true })}>
        Close input
      </Button>
    </form>
  );
}
