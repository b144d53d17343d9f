/** Page of one sandbox, with its tabs. */

import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { readOnly } from "../lib/access";
import * as actions from "../lib/actions";
import { bytes, cores, mib } from "../lib/format";
import { bind } from "../lib/keys";
import { go, link, move, type Tab } from "../lib/route";
import { loadError, measured, read, reload, sandboxes, watchSandbox } from "../lib/sandboxes";
import { Button } from "../parts/button";
import { Icon } from "../parts/icon";
import { Empty, Loading, Meter, State, LoadError } from "../parts/state";
import { Commands } from "./commands/tab";
import { Details } from "./details/tab";
import { Files } from "./files/tab";
import { NetworkTab } from "./network/tab";
import { Ports } from "./ports/tab";
import { Processes } from "./processes/tab";
import { Sessions } from "./sessions/tab";
import { Snapshots } from "./snapshots/tab";
import { close, openTerminals, type OpenTerminal } from "../terminal/opened";
import { TerminalTab } from "../terminal/tab";

/** The page. */
export function SandboxPage({ id, tab, name }: { id: string; tab: Tab; name: string }): JSX.Element {
  useEffect(() => watchSandbox(id), [id]);
  useLayoutEffect(() => {
    const to = (tab: Tab) => () => go("sandboxes", id, tab);
    return bind([
      { group: "Sandbox", keys: "t", label: "Terminal", run: to("terminal") },
      { group: "Sandbox", keys: "g e", label: "Sessions", run: to("sessions") },
      { group: "Sandbox", keys: "g c", label: "Commands", run: to("commands") },
      { group: "Sandbox", keys: "g r", label: "Processes", run: to("processes") },
      { group: "Sandbox", keys: "g f", label: "Files", run: to("files") },
      { group: "Sandbox", keys: "g o", label: "Ports", run: to("ports") },
      { group: "Sandbox", keys: "g w", label: "Network", run: to("network") },
      { group: "Sandbox", keys: "g n", label: "Snapshots", run: to("snapshots") },
      { group: "Sandbox", keys: "g d", label: "Details", run: to("details") },
    ]);
  }, [id]);
  const all = sandboxes.value;
  const one = all?.get(id);
  if (!all) {
    return <main class="page">{loadError.value ? <LoadError {...loadError.value} again={() => void reload()} /> : <Loading />}</main>;
  }
  if (!one) {
    return (
      <main class="page" id="main" tabIndex={-1}>
        <Empty icon="box" title={`Sandbox ${id} does not exist`}>
          <p>It was destroyed or never created.</p>
          <a class="button plain" href={link("sandboxes")}>
            All sandboxes
          </a>
        </Empty>
      </main>
    );
  }
  const uses = one.state === "running" ? measured.value.get(id) : undefined;
  return (
    <main class={`page sandbox on-${tab} ${isWhole(tab, name) ? "whole" : ""}`} id="main" tabIndex={-1}>
      <div class="bar">
        <h1 class="mono">{id}</h1>
        <State of={one.state} cause={one.cause} />
        <div class="meters">
          {uses && (
            <>
              <Meter part={uses.memory} whole={one.memory_mib * 1048576} text={bytes(uses.memory)} of={mib(one.memory_mib)} label="Memory" />
              {uses.cpu !== undefined && (
                <Meter part={uses.cpu} whole={one.cpu_millis} text={cores(uses.cpu)} of={`${cores(one.cpu_millis)} cpu`} label="CPU" />
              )}
            </>
          )}
        </div>
        <div class="acts">
          {one.state === "sleeping" ? (
            <Button icon="wake" changes onClick={() => void actions.wake(id).then(() => read(id))}>
              Wake
            </Button>
          ) : one.state === "paused" ? (
            <Button icon="wake" changes onClick={() => void actions.resume(id)}>
              Resume
            </Button>
          ) : (
            <Button icon="sleep" changes disabled={one.state !== "running"} onClick={() => void actions.sleep(id)}>
              Sleep
            </Button>
          )}
          <Button icon="trash" changes onClick={() => actions.destroy(id)}>
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
        {tab === "processes" && <Processes of={one} name={name} />}
        {tab === "files" && <Files sandbox={one} path={name} />}
        {tab === "ports" && <Ports of={one} />}
        {tab === "network" && <NetworkTab of={one} />}
        {tab === "snapshots" && <Snapshots of={one} />}
        {tab === "details" && <Details of={one} />}
      </div>
    </main>
  );
}

/** Whether the tab fills the window, with content that scrolls inside. */
const isWhole = (tab: Tab, name: string): boolean =>
  tab === "terminal" || tab === "commands" || tab === "files" || (tab === "processes" && name !== "");

const FIXED: { tab: Tab; label: string }[] = [
  { tab: "sessions", label: "Sessions" },
  { tab: "commands", label: "Commands" },
  { tab: "processes", label: "Processes" },
  { tab: "files", label: "Files" },
  { tab: "ports", label: "Ports" },
  { tab: "network", label: "Network" },
  { tab: "snapshots", label: "Snapshots" },
  { tab: "details", label: "Details" },
];

/** Tab bar: the fixed tabs, and one for each open terminal. */
function Strip({ id, tab, name }: { id: string; tab: Tab; name: string }): JSX.Element {
  const terminals = openTerminals.value.filter((one) => one.sandbox === id);
  const strip = useRef<HTMLDivElement>(null);
  // The chosen tab stays in sight, also when the window or the tabs change their size.
  useLayoutEffect(() => {
    const show = (): void => strip.current?.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: "nearest", inline: "center" });
    show();
    const sized = new ResizeObserver(show);
    sized.observe(strip.current!);
    return () => sized.disconnect();
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
  const owned = [...FIXED.map((one) => `tab-${one.tab}`), ...terminals.map((one) => `tab-terminal-${one.session}`)].join(" ");
  return (
    <div class="strip" onKeyDown={keyed} ref={strip}>
      <div class="tabs">
        {/* The list owns its tabs from outside, since buttons stand between them. */}
        <div role="tablist" aria-label={`Sections of ${id}`} aria-owns={owned} />
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
            {one.label}
          </a>
        ))}
        <span class="gap" aria-hidden="true" />
        {terminals.map((one) => (
          <TerminalHandle key={one.session} of={one} chosen={tab === "terminal" && name === one.session} />
        ))}
      </div>
      {!readOnly.value && (
        <a
          class="button quiet new-terminal"
          href={link("sandboxes", id, "terminal")}
          title="Terminal (t)"
          onClick={(event) => {
            if (terminals.length === 0 || event.ctrlKey || event.metaKey || event.shiftKey) return;
            event.preventDefault();
            move("sandboxes", id, "terminal", unusedSession(terminals));
          }}
        >
          <Icon icon="plus" />
          <span>Terminal</span>
        </a>
      )}
    </div>
  );
}

/** A session name without an open terminal tab: each session has one terminal. */
function unusedSession(terminals: OpenTerminal[]): string {
  const has = (name: string): boolean => terminals.some((one) => one.session === name);
  if (!has("default")) return "default";
  let number = 2;
  while (has(`t${number}`)) number++;
  return `t${number}`;
}

function TerminalHandle({ of, chosen }: { of: OpenTerminal; chosen: boolean }): JSX.Element {
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
        <Icon icon="terminal" />
        {of.session}
      </a>
      <button type="button" class="shut" aria-label={`Detach from the terminal of ${of.session}`} title="Detach (the terminal keeps running)" tabIndex={-1} onClick={() => leave(of)}>
        <Icon icon="close" />
      </button>
    </span>
  );
}

function leave(of: OpenTerminal): void {
  close(of);
  const next = openTerminals.peek().find((one) => one.sandbox === of.sandbox);
  if (next) move("sandboxes", of.sandbox, "terminal", next.session);
  else move("sandboxes", of.sandbox, "sessions");
}
