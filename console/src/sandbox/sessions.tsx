/** The sessions of a sandbox, and their terminals. */

import type { TerminalInfo } from "@isolet/sdk";
import { IsoletError } from "@isolet/sdk";
import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useState } from "preact/hooks";
import { api, at, type Sandbox, type Session } from "../lib/api";
import { now } from "../lib/clock";
import { hear } from "../lib/events";
import { many, rough } from "../lib/format";
import { bind, step } from "../lib/keys";
import { done } from "../lib/notice";
import { link } from "../lib/route";
import { readSessions, sessions } from "../lib/sandboxes";
import { openSession } from "../pages/create";
import { Button } from "../parts/button";
import { confirm } from "../parts/dialog";
import { Empty, Loading } from "../parts/state";
import { plain } from "../terminal/opened";

type Running = Omit<TerminalInfo, "ageMs">;

/** How often the terminals are asked for, while this is looked at. */
const TERMINALS_MS = 6000;

/** The tab. */
export function Sessions({ of }: { of: Sandbox }): JSX.Element {
  const terminals = useTerminals(of);
  useLayoutEffect(
    () =>
      bind([
        { group: "Lists", keys: "j", says: "Down (also ↓)", run: () => step(".row a.to", 1) },
        { group: "Lists", keys: "k", says: "Up (also ↑)", run: () => step(".row a.to", -1) },
        { group: "Lists", keys: "ArrowDown", also: true, says: "Down", run: () => step(".row a.to", 1) },
        { group: "Lists", keys: "ArrowUp", also: true, says: "Up", run: () => step(".row a.to", -1) },
        { group: "Sandbox", keys: "n", says: "New session", run: () => openSession(of.id) },
      ]),
    [of.id],
  );
  const all = sessions.value.get(of.id);
  if (!all) return <Loading rows={3} />;
  return (
    <>
      <div class="subbar">
        <span class="dim">{many(all.length, "session")}</span>
        <Button sign="plus" onClick={() => openSession(of.id)} hint="New session (n)">
          New session
        </Button>
      </div>
      {all.length === 0 ? (
        <Empty sign="terminal" title="No sessions yet">
          <p>A session is a shell that stays: its directory, variables and jobs are there for the next command.</p>
          <a class="button main" href={link("sandboxes", of.id, "terminal")}>
            Open a terminal
          </a>
        </Empty>
      ) : (
        <table class="list sessions" aria-label={`Sessions of ${of.id}`}>
          <thead>
            <tr>
              <th scope="col">Session</th>
              <th scope="col">Shell</th>
              <th scope="col">Terminal</th>
              <th scope="col">Begins in</th>
              <th scope="col" class="number">
                Last used
              </th>
              <th scope="col">
                <span class="unseen">What can be done</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {all.map((one) => (
              <Row key={one.id} sandbox={of.id} of={one} terminal={terminals.find((it) => it.session === one.id)} />
            ))}
          </tbody>
        </table>
      )}
    </>
  );
}

/** The terminals that run; asked now and then, for they are not told of by events. */
function useTerminals({ id, state }: Sandbox): Running[] {
  const [all, setAll] = useState<Running[]>([]);
  useEffect(() => {
    if (state !== "running") return setAll([]);
    const leave = new AbortController();
    const ask = async (): Promise<void> => {
      if (document.hidden) return;
      try {
        setAll(await api().json<Running[]>(at(id, "terminals"), { signal: leave.signal }));
      } catch {
        // The banner tells of a server that does not answer.
      }
    };
    void ask();
    const timer = setInterval(() => void ask(), TERMINALS_MS);
    const deaf = hear((event) => event.sandbox === id && event.kind.startsWith("session_") && void ask());
    return () => {
      leave.abort();
      clearInterval(timer);
      deaf();
    };
  }, [id, state]);
  return all;
}

function Row({ sandbox, of, terminal }: { sandbox: string; of: Session; terminal: Running | undefined }): JSX.Element {
  const name = typeof of.metadata["name"] === "string" ? of.metadata["name"] : "";
  const scoped = of.file_access.read.length + of.file_access.write.length > 0 && !of.file_access.write.includes("");
  const shell = of.busy ? "busy" : of.shell_pid === null ? "closed" : "idle";
  return (
    <tr class="row">
      <th scope="row">
        <a class="to" href={link("sandboxes", sandbox, "commands", of.id)}>
          {of.id}
        </a>
        {name && <span class="dim"> {name}</span>}
        {scoped && <span class="chip" title={`reads ${of.file_access.read.join(", ") || "–"}; writes ${of.file_access.write.join(", ") || "–"}`}>scoped</span>}
      </th>
      <td>
        <span class={`state ${{ busy: "running", idle: "idle", closed: "closed" }[shell]}`} title={of.shell_pid === null ? "It opens with the next command" : `process ${of.shell_pid}`}>
          <i aria-hidden="true" />
          {shell}
        </span>
      </td>
      <td class="cell-terminal">
        {terminal ? (
          <span title={terminal.command.join(" ")}>
            {plain(terminal.title) || terminal.command[0] || "bash"}
            <span class="dim"> {terminal.clients.length ? `${terminal.clients.length} attached` : "nobody attached"}</span>
          </span>
        ) : (
          <span class="dim">none</span>
        )}
      </td>
      <td class="mono dim cell-cwd">{of.cwd}</td>
      <td class="number cell-age">{rough(now.value - of.last_activity_ms)}</td>
      <td class="acts">
        <a class="button plain" href={link("sandboxes", sandbox, "terminal", of.id)}>
          Terminal
        </a>
        <a class="button quiet" href={link("sandboxes", sandbox, "commands", of.id)}>
          Commands
        </a>
        <Button
          sign="trash"
          kind="quiet"
          label={of.id === "default" ? "The session default stays" : `Delete session ${of.id}`}
          disabled={of.id === "default"}
          onClick={() => remove(sandbox, of.id)}
        />
      </td>
    </tr>
  );
}

function remove(sandbox: string, id: string): void {
  confirm({
    title: "Delete session",
    says: `The shell of ${id}, its terminal and what runs in them end. Files stay.`,
    act: "Delete",
    run: async () => {
      try {
        await api().send(at(sandbox, "sessions", id), { method: "DELETE" });
      } catch (error) {
        if (!(error instanceof IsoletError && error.status === 404)) throw error;
      }
      await readSessions(sandbox);
      done(`session ${id} is deleted`);
    },
  });
}
