/** Editor of one text file. Text that was not saved is kept while other pages are shown. */

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { describeError } from "../../lib/api";
import { visibleName } from "../../lib/format";
import { notifyFailure, notifySuccess } from "../../lib/notice";
import { Button } from "../../parts/button";
import { confirm } from "../../parts/dialog";
import { Loading, LoadError } from "../../parts/state";
import type { Editor as CodeEditor } from "./code";
import { read, save, type Version } from "./content";
import type { Entry } from "./disk";

/** Text that was not saved, with the tag of the version that it was made from; by sandbox and path. */
const drafts = new Map<string, Version>();
/** Limit on drafts. */
const DRAFTS_MAX = 20;

addEventListener("beforeunload", (event) => drafts.size > 0 && event.preventDefault());

function keep(name: string, draft: Version): void {
  drafts.delete(name);
  drafts.set(name, draft);
  if (drafts.size > DRAFTS_MAX) drafts.delete(drafts.keys().next().value!);
}

/** Whether a file has text that was not saved. */
export const hasDraft = (sandbox: string, path: string): boolean => drafts.has(`${sandbox}:${path}`);

interface Props {
  sandbox: string;
  of: Entry;
  /** Called after the file was saved. */
  saved: () => void;
  /** Back to the view of the file. */
  leave: () => void;
}

/** The editor. */
export function Editor({ sandbox, of, saved, leave }: Props): JSX.Element {
  const name = `${sandbox}:${of.path}`;
  const host = useRef<HTMLDivElement>(null);
  const code = useRef<CodeEditor>();
  /** The version that the text was made from. */
  const version = useRef<Version>({ text: "", etag: "" });
  const [state, setState] = useState<"loading" | "same" | "changed" | "saving" | "conflict">("loading");
  const [wrong, setWrong] = useState<ReturnType<typeof describeError>>();
  const [restored, setRestored] = useState(false);
  const store = async (overwrite = false): Promise<void> => {
    const editor = code.current;
    if (!editor) return;
    setState("saving");
    const text = editor.text();
    try {
      const etag = await save(sandbox, of, text, overwrite ? undefined : version.current.etag);
      if (etag === undefined) return setState("conflict");
      version.current = { text, etag };
      const after = editor.text();
      if (after === text) drafts.delete(name);
      else keep(name, { text: after, etag });
      setState(after === text ? "same" : "changed");
      setRestored(false);
      notifySuccess(`${visibleName(of.name)} was saved`);
      saved();
    } catch (error) {
      setState("changed");
      notifyFailure(error, "Could not save");
    }
  };
  const saving = useRef(store);
  saving.current = store;
  useEffect(() => {
    const ends = new AbortController();
    const draft = drafts.get(name);
    const start = async (): Promise<void> => {
      const [{ openEditor }, now] = await Promise.all([import("./code"), draft ? undefined : read(sandbox, of, ends.signal)]);
      if (ends.signal.aborted) return;
      version.current = draft ? { text: "", etag: draft.etag } : now!;
      const onChange = (): void => {
        keep(name, { text: code.current!.text(), etag: version.current.etag });
        setState((was) => (was === "conflict" ? was : "changed"));
      };
      code.current = await openEditor(host.current!, { name: of.name, text: draft?.text ?? now!.text, onChange, onSave: () => void saving.current() });
      if (ends.signal.aborted) return code.current.dispose();
      setRestored(draft !== undefined);
      setState(draft ? "changed" : "same");
      code.current.focus();
    };
    start().catch((error: unknown) => !ends.signal.aborted && setWrong(describeError(error)));
    return () => {
      ends.abort();
      code.current?.dispose();
      code.current = undefined;
    };
  }, [name]);
  const reload = async (): Promise<void> => {
    try {
      const now = await read(sandbox, of);
      version.current = now;
      code.current?.load(now.text);
      drafts.delete(name);
      setRestored(false);
      setState("same");
    } catch (error) {
      notifyFailure(error, "Could not read the file");
    }
  };
  const close = (): void => {
    if (!drafts.has(name)) return leave();
    confirm({
      title: "Discard changes",
      label: `The changes to ${visibleName(of.name)} were not saved and will be lost.`,
      act: "Discard",
      run: async () => {
        drafts.delete(name);
        leave();
      },
    });
  };
  if (wrong) {
    return (
      <>
        <LoadError {...wrong} />
        <div class="more">
          <Button onClick={leave}>Back to the file</Button>
        </div>
      </>
    );
  }
  return (
    <>
      {state === "conflict" && (
        <div class="conflict" role="alert">
          <p>
            <strong>The file was changed by someone else</strong> since you opened it. Nothing was saved.
          </p>
          <div class="acts">
            <Button kind="bad" onClick={() => void store(true)}>
              Overwrite
            </Button>
            <Button onClick={() => void reload()}>Load the new version</Button>
            <Button
              kind="quiet"
              onClick={() => {
                setState("changed");
                code.current?.focus();
              }}
            >
              Keep editing
            </Button>
          </div>
        </div>
      )}
      <div class="editor-bar">
        <span class="dim" role="status">
          {{ loading: "Loading …", same: "Saved", changed: restored ? "Not saved; restored from before" : "Not saved", saving: "Saving …", conflict: "Not saved" }[state]}
        </span>
        <Button kind="main" disabled={state !== "changed"} onClick={() => void store()} hint="Save (Ctrl S)">
          Save
        </Button>
        <Button kind="quiet" onClick={close}>
          Close editor
        </Button>
      </div>
      {state === "loading" && <Loading rows={8} />}
      <div class="editor" ref={host} />
    </>
  );
}
