/** One sandbox: its sessions, terminals, commands, files and limits, in tabs. */

import type { JSX } from "preact";
import { useEffect, useLayoutEffect } from "preact/hooks";
import * as actions from "../lib/actions";
import { bytes, cores, mib } from "../lib/format";
import { bind } from "../lib/keys";
import { go, link, move, type Tab } from "../lib/route";
import { failed, measured, read, renew, sandboxes, watch } from "../lib/sandboxes";
import { Button } from "../parts/button";
import { Icon } from "../parts/icon";
import { Empty, Loading, Meter, State, Wrong } from "../parts/state";
import { Commands } from "../sandbox/commands";
import { Details } from "../sandbox/details";
import { Files } from "../sandbox/files";
import { Sessions } from "../sandbox/sessions";
import { close, opened, type Opened } from "../terminal/opened";
import { TerminalTab } from "../terminal/tab";

/** The page. */
export function SandboxPage({ id, tab, name }: { id: string; tab: Tab; name: string }): JSX.Element {
  useEffect(() => watch(id), [id]);
  useLayoutEffect(() => {
    const to = (tab: Tab) => () => go("sandboxes", id, tab);
    return bind([
      { group: "Sandbox", keys: "t", says: "Terminal", run: to("terminal") },
      { group: "Sandbox", keys: "g e", says: "Sessions", run: to("sessions") },
      { group: "Sandbox", keys: "g c", says: "Commands", run: to("commands") },
      { group: "Sandbox", keys: "g f", says: "Files", run: to("files") },
      { group: "Sandbox", keys: "g d", says: "Details", run: to("details") },
    ]);
  }, [id]);
  const all = sandboxes.value;
  const one = all?.get(id);
  if (!all) {
    return <main class="page">{failed.value ? <Wrong {...failed.value} again={() => void renew()} /> : <Loading />}</main>;
  }
  if (!one) {
    return (
      <main class="page" id="main" tabIndex={-1}>
        <Empty sign="box" title={`There is no sandbox ${id}`}>
          <p>It was destroyed, or never made.</p>
          <a class="button plain" href={link("sandboxes")}>
            All sandboxes
          </a>
        </Empty>
      </main>
    );
  }
  const uses = one.state === "running" ? measured.value.get(id) : undefined;
  return (
    <main class={`page sandbox on-${tab}`} id="main" tabIndex={-1}>
      <div class="bar">
        <h1 class="mono">{id}</h1>
        <State of={one.state} cause={one.cause} />
        <div class="meters">
          {uses && (
            <>
              <Meter part={uses.memory} whole={one.memory_mib * 1048576} says={bytes(uses.memory)} of={mib(one.memory_mib)} label="Memory" />
              {uses.cpu !== undefined && (
                <Meter part={uses.cpu} whole={one.cpu_millis} says={cores(uses.cpu)} of={`${cores(one.cpu_millis)} cpu`} label="CPU" />
              )}
            </>
          )}
        </div>
        <div class="acts">
          {one.state === "sleeping" ? (
            <Button sign="wake" onClick={() => void actions.wake(id).then(() => read(id))}>
              Wake
            </Button>
          ) : (
            <Button sign="sleep" disabled={one.state !== "running"} onClick={() => void actions.sleep(id)}>
              Sleep
            </Button>
          )}
          <Button sign="trash" onClick={() => actions.destroy(id)}>
            Destroy
          </Button>
        </div>
      </div>
      {one.cause && <p class="cause">{one.cause}</p>}
      <Strip id={id} tab={tab} name={name} />
      <div class="tab" role="tabpanel" id="panel" aria-labelledby={`tab-${tab === "terminal" ? `terminal-${name}` : tab}`}>
        {tab === "sessions" && <Sessions of={one} />}
        {tab === "terminal" && <TerminalTab sandbox={one} name={name} />}
        {tab === "commands" && <Commands sandbox={one} session={name || "default"} />}
        {tab === "files" && <Files sandbox={one} path={name} />}
        {tab === "details" && <Details of={one} />}
      </div>
    </main>
  );
}

const FIXED: { tab: Tab; says: string }[] = [
  { tab: "sessions", says: "Sessions" },
  { tab: "commands", says: "Commands" },
  { tab: "files", says: "Files" },
  { tab: "details", says: "Details" },
];

/** The tabs: four that are always there, and one for each terminal. */
function Strip({ id, tab, name }: { id: string; tab: Tab; name: string }): JSX.Element {
  const terminals = opened.value.filter((one) => one.sandbox === id);
  useEffect(() => {
    document.querySelector('.strip [aria-selected="true"]')?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [tab, name, terminals.length]);
  const keyed = (event: KeyboardEvent): void => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const here = event.target as HTMLElement;
    if (by === undefined || here.getAttribute("role") !== "tab") return;
    event.preventDefault();
    const all = [...document.querySelectorAll<HTMLAnchorElement>('.strip [role="tab"]')];
    const next = all[(all.indexOf(here as HTMLAnchorElement) + by + all.length) % all.length];
    next?.focus();
    next?.click();
  };
  return (
    <div class="strip" onKeyDown={keyed}>
      <div class="tabs" role="tablist" aria-label={`Parts of ${id}`}>
        {FIXED.map((one) => (
          <a
            key={one.tab}
            id={`tab-${one.tab}`}
            role="tab"
            aria-selected={tab === one.tab}
            aria-controls="panel"
            tabIndex={tab === one.tab ? 0 : -1}
            href={link("sandboxes", id, one.tab)}
          >
            {one.says}
          </a>
        ))}
        <span class="gap" aria-hidden="true" />
        {terminals.map((one) => (
          <TerminalHandle key={one.session} of={one} chosen={tab === "terminal" && name === one.session} />
        ))}
      </div>
      <a
        class="button quiet new-terminal"
        href={link("sandboxes", id, "terminal")}
        title="Terminal (t)"
        onClick={(event) => {
          if (terminals.length === 0) return;
          event.preventDefault();
          move("sandboxes", id, "terminal", fresh(terminals));
        }}
      >
        <Icon sign="plus" />
        <span>Terminal</span>
      </a>
    </div>
  );
}

/** A session's name that no tab of this sandbox has yet: each session has one terminal. */
function fresh(terminals: Opened[]): string {
  const has = (name: string): boolean => terminals.some((one) => one.session === name);
  if (!has("default")) return "default";
  let number = 2;
  while (has(`t${number}`)) number++;
  return `t${number}`;
}

function TerminalHandle({ of, chosen }: { of: Opened; chosen: boolean }): JSX.Element {
  const state = of.state.value;
  return (
    <span class={`handle ${state.kind}`} role="presentation">
      <a
        id={`tab-terminal-${of.session}`}
        role="tab"
        aria-selected={chosen}
        aria-controls="panel"
        tabIndex={chosen ? 0 : -1}
        href={link("sandboxes", of.sandbox, "terminal", of.session)}
        title={of.title.value || `Terminal of session ${of.session}`}
        onKeyDown={(event) => event.key === "Delete" && leave(of)}
      >
        <Icon sign="terminal" />
        {of.session}
      </a>
      <button type="button" class="shut" aria-label={`Leave the terminal of ${of.session}`} title="Leave (it runs on)" tabIndex={-1} onClick={() => leave(of)}>
        <Icon sign="close" />
      </button>
    </span>
  );
}

function leave(of: Opened): void {
  close(of);
  const next = opened.peek().find((one) => one.sandbox === of.sandbox);
  if (next) move("sandboxes", of.sandbox, "terminal", next.session);
  else move("sandboxes", of.sandbox, "sessions");
}
