/** The tab of one terminal: its screen, who else is there, and what can be done. */

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { api, at, type Sandbox } from "../lib/api";
import { saved } from "../lib/download";
import { attempt, done } from "../lib/notice";
import { move } from "../lib/route";
import { dark } from "../lib/theme";
import { Button } from "../parts/button";
import { confirm } from "../parts/dialog";
import { Icon } from "../parts/icon";
import { Empty } from "../parts/state";
import { found } from "./theme";
import { attachAs, close, connect, open, opened, type Opened } from "./opened";

/** The tab; without a name the first one that is open, or the default session's. */
export function TerminalTab({ sandbox, name }: { sandbox: Sandbox; name: string }): JSX.Element {
  const session = name || opened.value.find((one) => one.sandbox === sandbox.id)?.session || "default";
  useEffect(() => {
    if (name === "") move("sandboxes", sandbox.id, "terminal", session);
  }, [name]);
  const [one, setOne] = useState<Opened>();
  const there = opened.value.some((one) => one.sandbox === sandbox.id && one.session === session);
  const awake = sandbox.state !== "sleeping";
  useEffect(() => {
    // One that fell asleep under its terminal is not to be woken by it; one that slept before is.
    if (awake || one === undefined) setOne(open(sandbox.id, session));
  }, [sandbox.id, session, awake]);
  if (sandbox.state === "failed") {
    return (
      <Empty sign="terminal" title="This sandbox has failed">
        <p>Nothing runs in it any more. Its files stay until it is destroyed.</p>
      </Empty>
    );
  }
  if (!awake && one !== undefined && !there) {
    return (
      <Empty sign="sleep" title="This sandbox has fallen asleep">
        <p>Its terminals have ended. A new one wakes it.</p>
        <Button kind="main" sign="terminal" onClick={() => setOne(open(sandbox.id, session))}>
          New terminal
        </Button>
      </Empty>
    );
  }
  if (opened.value.length > 0 && one === undefined && !opened.value.some((it) => it.session === session)) {
    return (
      <Empty sign="terminal" title="Too many terminals are open in this page">
        <p>Leave one of them first: what runs in it runs on.</p>
      </Empty>
    );
  }
  return one && one.session === session && one.sandbox === sandbox.id ? <Screen key={session} of={one} /> : <div class="terminal" />;
}

function Screen({ of }: { of: Opened }): JSX.Element {
  const place = useRef<HTMLDivElement>(null);
  const [searching, setSearching] = useState(false);
  useEffect(() => {
    place.current!.append(of.host);
    of.fit();
    of.xterm.focus();
    const fit = (): void => {
      of.fit();
      shrink(of);
    };
    const seen = new ResizeObserver(fit);
    seen.observe(place.current!);
    const sized = of.xterm.onResize(() => requestAnimationFrame(() => shrink(of)));
    of.xterm.attachCustomKeyEventHandler((event) => chord(event, of, () => setSearching(true)));
    return () => {
      seen.disconnect();
      sized.dispose();
      of.host.remove();
    };
  }, [of]);
  const { cols, rows } = of.size.value;
  return (
    <div class="terminal">
      <Head of={of} search={() => setSearching(!searching)} />
      {searching && <Search of={of} leave={() => setSearching(false)} />}
      <div class={`place ${of.foreign.value || of.mode === "view" ? "boxed" : ""}`} ref={place} />
      {(of.foreign.value || of.mode === "view") && of.state.value.kind === "live" && (
        <p class="foreign">
          {of.mode === "view" ? "You look only." : "Somebody else typed last:"} drawn in {cols} × {rows}
          {of.mode === "view" ? "" : ", until you type"}
        </p>
      )}
      <Over of={of} />
    </div>
  );
}

/** A smaller part of its size is drawn no more: what is larger is scrolled. */
const SCALE_MIN = 0.55;

/** Has a terminal that is drawn in another's size fit into this window. */
function shrink({ host }: Opened): void {
  const screen = host.querySelector<HTMLElement>(".xterm-screen");
  const room = host.parentElement;
  if (!screen || !room || screen.offsetWidth === 0) return;
  const scale = Math.min(1, (room.clientWidth - 36) / screen.offsetWidth, (room.clientHeight - 22) / screen.offsetHeight);
  host.style.setProperty("--scale", String(Math.max(scale, SCALE_MIN)));
}

/** Keys that are the console's even here: no terminal program knows them. */
function chord(event: KeyboardEvent, of: Opened, search: () => void): boolean {
  if (event.type !== "keydown") return true;
  const shown = of.state.peek();
  if (shown.kind === "ended" && event.key === "Enter") {
    event.preventDefault();
    connect(of);
    return false;
  }
  if (!event.ctrlKey || !event.shiftKey || event.altKey || event.metaKey) return true;
  const run = {
    KeyL: () => document.getElementById(`tab-terminal-${of.session}`)?.focus(),
    KeyF: search,
    KeyC: () => void copy(of),
  }[event.code];
  if (!run) return true;
  event.preventDefault();
  run();
  return false;
}

async function copy(of: Opened): Promise<void> {
  const text = of.xterm.getSelection();
  if (text !== "") await attempt("Cannot copy", () => navigator.clipboard.writeText(text));
}

function Head({ of, search }: { of: Opened; search: () => void }): JSX.Element {
  const others = of.clients.value.filter((one) => one.client !== of.me.value);
  const { cols, rows } = of.size.value;
  const live = of.state.value.kind === "live";
  return (
    <header class="terminal-head">
      <span class="terminal-title" title={of.title.value}>
        {of.title.value || of.session}
      </span>
      <span class="who" aria-label="Who else is attached">
        {others.map((one) => (
          <span key={one.client} class={`chip ${one.typing ? "typing" : ""}`} title={one.mode === "view" ? "looks only" : one.typing ? "typed last" : "may type"}>
            {one.mode === "view" && <Icon sign="eye" />}
            {one.name || `client ${one.client}`}
          </span>
        ))}
      </span>
      <span class="dim size">
        {cols}×{rows}
      </span>
      <Button sign="search" kind="quiet" label="Search (Ctrl Shift F)" onClick={search} />
      <Button
        sign="eye"
        kind="quiet"
        label={of.mode === "view" ? "Type again" : "Look only"}
        pressed={of.mode === "view"}
        onClick={() => {
          attachAs(of, of.mode === "view" ? "edit" : "view");
          of.xterm.focus();
        }}
      />
      <Recorder of={of} live={live} />
      <Button
        sign="power"
        kind="quiet"
        label="End this terminal"
        onClick={() =>
          confirm({
            title: "End this terminal",
            says: `What runs in the terminal of ${of.session} is hung up, for everybody who is attached. The session stays.`,
            act: "End it",
            run: async () => {
              await api().send(at(of.sandbox, "terminals", of.session), { method: "DELETE" });
            },
          })
        }
      />
    </header>
  );
}

interface Recording {
  id: string;
  session: string;
  ended_at: string | null;
}

function Recorder({ of, live }: { of: Opened; live: boolean }): JSX.Element {
  const [id, setId] = useState<string>();
  const path = at(of.sandbox, "terminals", of.session, "recording");
  useEffect(() => {
    if (!live) return;
    void api()
      .json<Recording[]>(at(of.sandbox, "recordings"))
      .then((all) => setId(all.find((one) => one.session === of.session && one.ended_at === null)?.id))
      .catch(() => undefined);
  }, [live]);
  const turn = async (): Promise<void> => {
    if (id === undefined) {
      const made = await attempt("Cannot record", () => api().json<Recording>(path, { method: "POST", json: {} }));
      if (made) setId(made.id);
      return;
    }
    const ended = await attempt("Cannot stop", () => api().send(path, { method: "DELETE" }));
    if (!ended) return;
    setId(undefined);
    done("Recorded. It lies under Details as well.");
    const file = await attempt("Cannot download", () => api().send(at(of.sandbox, "recordings", id)));
    if (file) saved(await file.blob(), `${of.sandbox}-${of.session}.cast`);
  };
  return (
    <span class={id === undefined ? "" : "recording"}>
      <Button
        sign={id === undefined ? "record" : "stop"}
        kind="quiet"
        label={id === undefined ? "Record" : "Stop recording and download it"}
        pressed={id !== undefined}
        disabled={!live}
        onClick={() => void turn()}
      />
    </span>
  );
}

function Search({ of, leave }: { of: Opened; leave: () => void }): JSX.Element {
  const input = useRef<HTMLInputElement>(null);
  const [count, setCount] = useState<{ at: number; count: number }>();
  useEffect(() => {
    input.current?.focus();
    const results = of.search.onDidChangeResults(({ resultIndex, resultCount }) =>
      setCount({ at: resultIndex + 1, count: resultCount }),
    );
    return () => {
      results.dispose();
      of.search.clearDecorations();
      of.xterm.focus();
    };
  }, [of]);
  const look = (back: boolean, incremental = false): void => {
    const text = input.current?.value ?? "";
    const decorations = found(dark.peek());
    if (text === "") return of.search.clearDecorations();
    if (back) of.search.findPrevious(text, { decorations });
    else of.search.findNext(text, { decorations, incremental });
  };
  return (
    <div class="terminal-search" role="search">
      <Icon sign="search" />
      <input
        ref={input}
        aria-label="Search in the terminal"
        placeholder="Search"
        spellcheck={false}
        onInput={() => look(false, true)}
        onKeyDown={(event) => {
          if (event.key === "Escape") leave();
          else if (event.key === "Enter") look(!event.shiftKey);
        }}
      />
      <span class="dim" role="status">
        {count ? `${count.at}/${count.count}` : ""}
      </span>
      <Button sign="close" kind="quiet" label="Leave the search" onClick={leave} />
    </div>
  );
}

/** What is said over the screen while it is not live. */
function Over({ of }: { of: Opened }): JSX.Element | null {
  const shown = of.state.value;
  const [, tick] = useState(0);
  const waits = shown.kind === "back";
  useEffect(() => {
    if (!waits) return;
    const timer = setInterval(() => tick((n) => n + 1), 250);
    return () => clearInterval(timer);
  }, [waits]);
  if (shown.kind === "live" || shown.kind === "behind") return null;
  if (shown.kind === "connecting") {
    return (
      <p class="over slow" role="status">
        Connecting …
      </p>
    );
  }
  if (shown.kind === "back") {
    const left = Math.max(Math.ceil((shown.next - Date.now()) / 1000), 0);
    return (
      <p class="over" role="status">
        <strong>{shown.first ? "The server does not open it." : "Connection lost."}</strong>{" "}
        {!shown.first && "What runs in it runs on."} {left > 0 ? `Trying again in ${left} s` : "Trying again …"}
      </p>
    );
  }
  if (shown.kind === "ended") {
    return (
      <p class="over ended" role="status">
        <strong>The shell has ended</strong> with {shown.signal ?? `code ${shown.code}`}. Press <kbd>Enter</kbd> for a new one.{" "}
        <Button
          kind="main"
          onClick={() => {
            connect(of);
            of.xterm.focus();
          }}
        >
          New shell
        </Button>
      </p>
    );
  }
  return (
    <p class="over bad" role="alert">
      <strong>{shown.message}</strong> {shown.hint}{" "}
      <Button onClick={() => connect(of)}>Try again</Button>{" "}
      <Button
        kind="quiet"
        onClick={() => {
          close(of);
          move("sandboxes", of.sandbox, "sessions");
        }}
      >
        Leave
      </Button>
    </p>
  );
}
