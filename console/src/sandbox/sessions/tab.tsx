/** Tab with the sessions of a sandbox and their terminals. */

import type { TerminalInfo } from "@isolet/sdk";
import { IsoletError } from "@isolet/sdk";
import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useState } from "preact/hooks";
import { readOnly } from "../../lib/access";
import { api, at, type Sandbox, type Session } from "../../lib/api";
import { now } from "../../lib/clock";
import { onEvent } from "../../lib/events";
import { plural, roughDuration } from "../../lib/format";
import { bind, listKeys } from "../../lib/keys";
import { notifySuccess } from "../../lib/notice";
import { link } from "../../lib/route";
import { readSessions, sessions } from "../../lib/sandboxes";
import { openSession } from "./create";
import { Button } from "../../parts/button";
import { confirm } from "../../parts/dialog";
import { Empty, Loading } from "../../parts/state";
import { sanitizeTitle } from "../../terminal/opened";

type Running = Omit<TerminalInfo, "ageMs">;

/** Polling interval for terminals. */
const TERMINALS_MS = 6000;

/** The tab. */
export function Sessions({ of }: { of: Sandbox }): JSX.Element {
  const terminals = useTerminals(of);
  useLayoutEffect(
    () =>
      bind([
        ...listKeys,
        { group: "Sandbox", keys: "n", label: "New session", run: () => openSession(of.id) },
      ]),
    [of.id],
  );
  const all = sessions.value.get(of.id);
  if (!all) return <Loading rows={3} />;
  return (
    <>
      <div class="subbar">
        <span class="dim">{plural(all.length, "session")}</span>
        <Button icon="plus" changes onClick={() => openSession(of.id)} hint="New session (n)">
          New session
        </Button>
      </div>
      {all.length === 0 ? (
        <Empty icon="terminal" title="No sessions yet">
          <p>A session is a persistent shell: its working directory, variables and jobs remain for the next command.</p>
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
              <th scope="col">Working directory</th>
              <th scope="col" class="number">
                Last used
              </th>
              <th scope="col">
                <span class="unseen">Actions</span>
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

/** Running terminals. They are polled, since the server sends no events about them. */
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
        // The banner reports a server that is not responding.
      }
    };
    void ask();
    const timer = setInterval(() => void ask(), TERMINALS_MS);
    const unsubscribe = onEvent((event) => event.sandbox === id && event.kind.startsWith("session_") && void ask());
    return () => {
      leave.abort();
      clearInterval(timer);
      unsubscribe();
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
        <span class={`state ${{ busy: "running", idle: "idle", closed: "closed" }[shell]}`} title={of.shell_pid === null ? "Starts with the next command" : `process ${of.shell_pid}`}>
          <i aria-hidden="true" />
          {shell}
        </span>
      </td>
      <td class="cell-terminal">
        {terminal ? (
          <span title={terminal.command.join(" ")}>
            {sanitizeTitle(terminal.title) || terminal.command[0] || "bash"}
            <span class="dim"> {terminal.clients.length ? `${terminal.clients.length} attached` : "no clients attached"}</span>
          </span>
        ) : (
          <span class="dim">none</span>
        )}
      </td>
      <td class="mono dim cell-cwd">{of.cwd}</td>
      <td class="number cell-age">{roughDuration(now.value - of.last_activity_ms)}</td>
      <td class="acts">
        {(!readOnly.value || terminal) && (
          <a class="button plain" href={link("sandboxes", sandbox, "terminal", of.id)}>
            Terminal
          </a>
        )}
        <a class="button quiet" href={link("sandboxes", sandbox, "commands", of.id)}>
          Commands
        </a>
        <Button
          icon="trash"
          kind="quiet"
          changes
          label={of.id === "default" ? "The default session cannot be deleted" : `Delete session ${of.id}`}
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
    label: `This ends the shell of ${id}, its terminal and everything running in them. Files are not deleted.`,
    act: "Delete",
    run: async () => {
      try {
        await api().send(at(sandbox, "sessions", id), { method: "DELETE" });
      } catch (error) {
        if (!(error instanceof IsoletError && error.status === 404)) throw error;
      }
      await readSessions(sandbox);
      notifySuccess(`session ${id} was deleted`);
    },
  });
}
