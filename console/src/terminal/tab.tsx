/** Tab of one terminal: its screen, attached clients and actions. */

import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { mayChange } from "../lib/access";
import { api, at, type Sandbox } from "../lib/api";
import { saveFile } from "../lib/download";
import { attempt, notifySuccess } from "../lib/notice";
import { move } from "../lib/route";
import { dark } from "../lib/theme";
import { Button } from "../parts/button";
import { confirm } from "../parts/dialog";
import { Icon } from "../parts/icon";
import { Empty } from "../parts/state";
import { found } from "./theme";
import { attachAs, close, connect, open, openTerminals, type OpenTerminal } from "./opened";

/** The tab. Without a name, it shows the first open terminal, or that of the default session. */
export function TerminalTab({ sandbox, name }: { sandbox: Sandbox; name: string }): JSX.Element {
  const session = name || openTerminals.value.find((one) => one.sandbox === sandbox.id)?.session || "default";
  useEffect(() => {
    if (name === "") move("sandboxes", sandbox.id, "terminal", session);
  }, [name]);
  const [one, setOne] = useState<OpenTerminal>();
  const there = openTerminals.value.some((one) => one.sandbox === sandbox.id && one.session === session);
  const awake = sandbox.state !== "sleeping";
  useEffect(() => {
    // A sandbox that falls asleep while its terminal is shown must stay asleep; one that slept before is woken.
    if (awake || one === undefined) setOne(open(sandbox.id, session));
  }, [sandbox.id, session, awake]);
  if (sandbox.state === "failed") {
    return (
      <Empty icon="terminal" title="This sandbox has failed">
        <p>No programs are running in it. Its files remain until it is destroyed.</p>
      </Empty>
    );
  }
  if (!awake && one !== undefined && !there) {
    return (
      <Empty icon="sleep" title="This sandbox is asleep">
        <p>Its terminals have ended. Opening a new one wakes the sandbox.</p>
        <Button kind="main" icon="terminal" onClick={() => setOne(open(sandbox.id, session))}>
          New terminal
        </Button>
      </Empty>
    );
  }
  if (openTerminals.value.length > 0 && one === undefined && !openTerminals.value.some((it) => it.session === session)) {
    return (
      <Empty icon="terminal" title="Too many terminals are open in this page">
        <p>Detach from one of them first. Its programs keep running.</p>
      </Empty>
    );
  }
  return one && one.session === session && one.sandbox === sandbox.id ? <Screen key={session} of={one} /> : <div class="terminal" />;
}

function Screen({ of }: { of: OpenTerminal }): JSX.Element {
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
  return (
    <div class="terminal">
      <TerminalHeader of={of} search={() => setSearching(!searching)} />
      {searching && <Search of={of} leave={() => setSearching(false)} />}
      <div class={`place ${of.otherClientsSize.value || of.mode === "view" ? "boxed" : ""}`} ref={place} />
      <StatusOverlay of={of} />
    </div>
  );
}

/** Smallest scale of the screen; larger screens are scrolled. */
const SCALE_MIN = 0.35;

/** Scale a screen that has another client's size to fit this window. */
function shrink({ host }: OpenTerminal): void {
  const screen = host.querySelector<HTMLElement>(".xterm-screen");
  const room = host.parentElement;
  if (!screen || !room || screen.offsetWidth === 0) return;
  const scale = Math.min(1, (room.clientWidth - 36) / screen.offsetWidth, (room.clientHeight - 22) / screen.offsetHeight);
  host.style.setProperty("--scale", String(Math.max(scale, SCALE_MIN)));
  // The last rows have the prompt.
  room.scrollTop = room.classList.contains("boxed") ? room.scrollHeight : 0;
}

/** Shortcuts of the console inside terminals. No terminal program can receive these keys. */
function chord(event: KeyboardEvent, of: OpenTerminal, search: () => void): boolean {
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

async function copy(of: OpenTerminal): Promise<void> {
  const text = of.xterm.getSelection();
  if (text !== "") await attempt("Could not copy", () => navigator.clipboard.writeText(text));
}

function TerminalHeader({ of, search }: { of: OpenTerminal; search: () => void }): JSX.Element {
  const others = of.clients.value.filter((one) => one.client !== of.me.value);
  const { cols, rows } = of.size.value;
  const live = of.state.value.kind === "live";
  return (
    <header class="terminal-head">
      <span class="terminal-title" title={of.title.value}>
        {of.title.value || of.session}
      </span>
      <span class="who" role="group" aria-label="Other attached clients">
        {others.map((one) => (
          <span key={one.client} class={`chip ${one.typing ? "typing" : ""}`} title={one.mode === "view" ? "view only" : one.typing ? "typed last" : "can type"}>
            {one.mode === "view" && <Icon icon="eye" />}
            {one.name || `client ${one.client}`}
          </span>
        ))}
      </span>
      {live && (of.otherClientsSize.value || of.mode === "view") && (
        <span class="foreign">
          {of.mode === "view" ? "View only:" : "Another client typed last:"} size {cols} × {rows}
          {of.mode === "view" ? "" : " until you type"}
        </span>
      )}
      <span class="dim size">
        {cols}×{rows}
      </span>
      <Button icon="search" kind="quiet" label="Search (Ctrl Shift F)" onClick={search} />
      <Button
        icon="eye"
        kind="quiet"
        changes
        label={of.mode === "view" ? "Enable input" : "View only"}
        pressed={of.mode === "view"}
        onClick={() => {
          attachAs(of, of.mode === "view" ? "edit" : "view");
          of.xterm.focus();
        }}
      />
      {mayChange.value && <Recorder of={of} live={live} />}
      <Button
        icon="power"
        kind="quiet"
        changes
        label="Close this terminal"
        onClick={() =>
          confirm({
            title: "Close this terminal",
            label: `This ends the program in the terminal of ${of.session} for all attached clients. The session remains.`,
            act: "Close terminal",
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

function Recorder({ of, live }: { of: OpenTerminal; live: boolean }): JSX.Element {
  const [id, setId] = useState<string>();
  const path = at(of.sandbox, "terminals", of.session, "recording");
  useEffect(() => {
    if (!live) return;
    void api()
      .json<Recording[]>(at(of.sandbox, "recordings"))
      .then((all) => setId(all.find((one) => one.session === of.session && one.ended_at === null)?.id))
      .catch(() => undefined);
  }, [live]);
  const toggle = async (): Promise<void> => {
    if (id === undefined) {
      const made = await attempt("Could not record", () => api().json<Recording>(path, { method: "POST", json: {} }));
      if (made) setId(made.id);
      return;
    }
    const ended = await attempt("Could not stop recording", () => api().send(path, { method: "DELETE" }));
    if (!ended) return;
    setId(undefined);
    notifySuccess("Recording saved. It is also listed under Details.");
    const file = await attempt("Could not download", () => api().send(at(of.sandbox, "recordings", id)));
    if (file) saveFile(await file.blob(), `${of.sandbox}-${of.session}.cast`);
  };
  return (
    <span class={id === undefined ? "" : "recording"}>
      <Button
        icon={id === undefined ? "record" : "stop"}
        kind="quiet"
        label={id === undefined ? "Record" : "Stop recording and download it"}
        pressed={id !== undefined}
        disabled={!live}
        onClick={() => void toggle()}
      />
    </span>
  );
}

function Search({ of, leave }: { of: OpenTerminal; leave: () => void }): JSX.Element {
  const input = useRef<HTMLInputElement>(null);
  const [count, setCount] = useState<{ at: number; count: number }>();
  // Before the field can be seen: what is typed at once is counted too.
  useLayoutEffect(() => {
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
      <Icon icon="search" />
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
      <Button icon="close" kind="quiet" label="Close search" onClick={leave} />
    </div>
  );
}

/** Message over the screen while the terminal is not live. */
function StatusOverlay({ of }: { of: OpenTerminal }): JSX.Element | null {
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
        <strong>{shown.first ? "The server could not open the terminal." : "Connection lost."}</strong>{" "}
        {!shown.first && "Programs keep running."} {left > 0 ? `Retrying in ${left} s` : "Retrying …"}
        {of.dropped.value && <span class="dropped">What you type is not sent.</span>}
      </p>
    );
  }
  if (shown.kind === "ended") {
    return (
      <p class="over ended" role="status">
        <strong>The shell has exited</strong> with {shown.signal ?? `code ${shown.code}`}. Press <kbd>Enter</kbd> for a new one.{" "}
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
        Close
      </Button>
    </p>
  );
}
