/** Actions on background processes: end, signal, remove. */

import { IsoletError } from "@isolet/sdk";
import { useState } from "preact/hooks";
import { api, at } from "../../lib/api";
import { notifySuccess } from "../../lib/notice";
import { closeDialog, confirm, Dialog, Form, openDialog } from "../../parts/dialog";
import { Check, Select } from "../../parts/field";
import type { ProcessInfo } from "./api";

/** Signals that people send, with what programs commonly do. */
const SIGNALS = [
  ["TERM", "TERM: end"],
  ["INT", "INT: interrupt, as Ctrl C does"],
  ["HUP", "HUP: reload the configuration"],
  ["USR1", "USR1"],
  ["USR2", "USR2"],
  ["QUIT", "QUIT: end with a core dump"],
  ["STOP", "STOP: pause"],
  ["CONT", "CONT: continue"],
  ["KILL", "KILL: end at once"],
] as const;

/** Ask, then end a process with everything it started. */
export function end(sandbox: string, { id }: ProcessInfo, done: () => Promise<void>): void {
  confirm({
    title: "End process",
    label: `This ends ${id} and everything that it started: first with TERM, and after 5 s with KILL. Its log stays.`,
    act: "End",
    run: async () => {
      await api().json(at(sandbox, "processes", id, "kill"), { json: {} });
      await done();
      notifySuccess(`${id} has ended`);
    },
  });
}

/** Ask, then remove a process and its log. */
export function remove(sandbox: string, { id, status }: ProcessInfo, done: () => Promise<void>): void {
  confirm({
    title: "Remove process",
    label: `${status === "running" ? `This ends ${id} with everything that it started, and` : "This"} deletes its log.`,
    act: "Remove",
    run: async () => {
      try {
        await api().send(at(sandbox, "processes", id), { method: "DELETE" });
      } catch (error) {
        if (!(error instanceof IsoletError && error.status === 404)) throw error;
      }
      await done();
      notifySuccess(`${id} was removed`);
    },
  });
}

/** Choose a signal and send it. */
export function openSignal(sandbox: string, { id }: ProcessInfo): void {
  openDialog(() => {
    const [signal, setSignal] = useState<string>("TERM");
    const [all, setAll] = useState(false);
    const send = async (): Promise<void> => {
      await api().send(at(sandbox, "processes", id, "signal"), { json: { signal, all } });
      closeDialog();
      notifySuccess(`${signal} was sent to ${id}`);
    };
    return (
      <Dialog title={`Send a signal to ${id}`}>
        <Form act="Send" run={send}>
          <Select label="Signal" value={signal} set={setSignal} options={SIGNALS} first />
          <Check value={all} set={setAll}>
            Send it to everything that the process started, not to its process group only
          </Check>
        </Form>
      </Dialog>
    );
  });
}
