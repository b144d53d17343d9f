/** Tab with the commands of a session's shell, and an input to run more. */

import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { mayChange, readOnly } from "../../lib/access";
import * as actions from "../../lib/actions";
import type { Sandbox } from "../../lib/api";
import { now } from "../../lib/clock";
import { moment, formatDuration } from "../../lib/format";
import { move } from "../../lib/route";
import { read, sessions } from "../../lib/sandboxes";
import { Button, Keys } from "../../parts/button";
import { Output } from "../../parts/output";
import { Empty, Loading } from "../../parts/state";
import { ShellLog, type Command } from "./shell";

/** The tab. */
export function Commands({ sandbox, session }: { sandbox: Sandbox; session: string }): JSX.Element {
  const ids = sessions.value.get(sandbox.id)?.map((one) => one.id) ?? [];
  const all = ids.includes(session) ? ids : [session, ...ids];
  return (
    <div class="commands">
      <div class="subbar">
        <label class="choose">
          <span>Shell of session</span>
          <select
            value={session}
            onChange={(event) => move("sandboxes", sandbox.id, "commands", event.currentTarget.value)}
          >
            {all.map((id) => (
              <option key={id} value={id}>
                {id}
              </option>
            ))}
          </select>
        </label>
        <span class="dim hide-narrow">All commands in this shell, from all clients</span>
      </div>
      {readOnly.value ? (
        <Empty icon="eye" title="This key may only read">
          <p>A connection to a shell can run commands, so it needs a key that may change something.</p>
        </Empty>
      ) : sandbox.state === "running" ? (
        <Log key={`${sandbox.id}/${session}`} sandbox={sandbox.id} session={session} />
      ) : (
        <Empty icon={sandbox.state === "sleeping" ? "sleep" : "box"} title={`This sandbox is ${sandbox.state}`}>
          {sandbox.state === "sleeping" && (
            <Button kind="main" icon="wake" changes onClick={() => void actions.wake(sandbox.id).then(() => read(sandbox.id))}>
              Wake
            </Button>
          )}
        </Empty>
      )}
    </div>
  );
}

function Log({ sandbox, session }: { sandbox: string; session: string }): JSX.Element {
  const [log, setLog] = useState<ShellLog>();
  const list = useRef<HTMLDivElement>(null);
  const follows = useRef(true);
  useEffect(() => {
    const log = new ShellLog(sandbox, session);
    setLog(log);
    return () => log.close();
  }, [sandbox, session]);
  const version = log?.version.value;
  useLayoutEffect(() => {
    if (follows.current && list.current) list.current.scrollTop = list.current.scrollHeight;
  }, [version]);
  if (!log || (log.state.value === "connecting" && log.commands.length === 0)) return <Loading rows={4} />;
  return (
    <>
      {log.state.value === "lost" && (
        <p class="over inline" role="status">
          <strong>Connection lost.</strong> Commands keep running. Reconnecting …
        </p>
      )}
      <div
        class="log"
        ref={list}
        role="log"
        aria-label={`Commands of ${session}`}
        tabIndex={0}
        onScroll={({ currentTarget: at }) => (follows.current = at.scrollHeight - at.scrollTop - at.clientHeight < 40)}
      >
        {log.commands.length === 0 && (
          <Empty icon="terminal" title="No commands yet">
            <p>Commands that agents, the command line or you run in this shell appear here.</p>
          </Empty>
        )}
        {log.commands.map((one) => (
          <Entry key={one.number} of={one} version={version ?? 0} cancel={() => log.cancel(one)} />
        ))}
      </div>
      {mayChange.value && <Line run={(text) => log.run(text)} ready={log.state.value === "live"} />}
    </>
  );
}

/** Output up to this length is expanded by default; longer output only if its command failed. */
const SHORT_CHARS = 3000;

function Entry({ of, version, cancel }: { of: Command; version: number; cancel: () => void }): JSX.Element {
  const [open, setOpen] = useState<boolean>();
  const running = !of.exit && !of.refused && of.id !== "";
  const shown = open ?? (of.mine || running || (of.exit?.code ?? 0) !== 0 || of.size <= SHORT_CHARS);
  const bad = of.refused !== undefined || (of.exit?.code ?? 0) !== 0;
  const [owner, id] = of.id.includes("/") ? [of.id.slice(0, of.id.indexOf("/")), of.id.slice(of.id.indexOf("/") + 1)] : ["", of.id];
  const has = of.parts.length > 0 || of.cut;
  return (
    <article class={`command ${has && !shown ? "folded" : ""} ${running ? "runs" : bad ? "bad" : "good"}`}>
      <header>
        <button
          type="button"
          class="fold"
          aria-expanded={shown && has}
          aria-label={shown ? "Hide output" : "Show output"}
          disabled={!has}
          onClick={() => setOpen(!shown)}
        />
        <code class="command-text" title={of.id && `id ${id}${owner ? `, from client ${owner}` : ""}`}>
          {of.text || <span class="dim">command {id}</span>}
        </code>
        <span class="command-end">
          {of.exit?.mark && <span class="chip">{of.exit.mark}</span>}
          {running && (
            <>
              <span class="spin" role="img" aria-label="running" />
              {now.value - of.began > 1500 && <span class="dim">{formatDuration(now.value - of.began)}</span>}
              {of.mine && (
                <Button kind="quiet" onClick={cancel}>
                  Cancel
                </Button>
              )}
            </>
          )}
          {of.exit && of.id !== "" && (
            <>
              <span class="dim" title={moment(of.began)}>
                {formatDuration(of.exit.ms)}
              </span>
              <span class={`code ${of.exit.code === 0 ? "" : "bad"}`} title="Exit code">
                {of.exit.code}
              </span>
            </>
          )}
        </span>
      </header>
      {of.refused && <p class="wrong">{of.refused}</p>}
      {shown && has && (
        <pre class="output" tabIndex={0}>
          {of.cut && <span class="dim">… earlier output is not shown{"\n"}</span>}
          <Output parts={of.parts} version={version} />
        </pre>
      )}
    </article>
  );
}

const history: string[] = [];

function Line({ run, ready }: { run: (text: string) => boolean; ready: boolean }): JSX.Element {
  const [text, setText] = useState("");
  const [back, setBack] = useState(0);
  /** The user pressed Enter while there was no connection. */
  const [early, setEarly] = useState(false);
  useEffect(() => {
    if (ready) setEarly(false);
  }, [ready]);
  const send = (): void => {
    if (text.trim() === "") return;
    if (!run(text)) return setEarly(true);
    history.push(text);
    setText("");
    setBack(0);
  };
  const recall = (to: number): void => {
    const next = Math.min(Math.max(to, 0), history.length);
    setBack(next);
    setText(next === 0 ? "" : history[history.length - next]!);
  };
  return (
    <>
      {early && (
        <p class="refused-input" role="alert">
          Not sent: the connection is lost. Your text stays here; press Enter again once it is back.
        </p>
      )}
      <form
        class="line"
        onSubmit={(event) => {
          event.preventDefault();
          send();
        }}
      >
        <span class="prompt" aria-hidden="true">
          ❯
        </span>
        <textarea
          rows={Math.min(text.split("\n").length, 8)}
          aria-label="Run a command in this shell"
          placeholder="Run a command in this shell"
          spellcheck={false}
          autoCapitalize="off"
          value={text}
          onInput={(event) => setText(event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
              event.preventDefault();
              send();
            } else if (event.key === "ArrowUp" && !text.includes("\n") && (text === "" || back > 0)) {
              event.preventDefault();
              recall(back + 1);
            } else if (event.key === "ArrowDown" && back > 0) {
              event.preventDefault();
              recall(back - 1);
            } else if (event.key === "Escape") event.currentTarget.blur();
          }}
        />
        <Button submit kind="main" disabled={!ready || text.trim() === ""}>
          Run
        </Button>
        <span class="hide-narrow">
          <Keys of="Enter" />
        </span>
      </form>
    </>
  );
}
