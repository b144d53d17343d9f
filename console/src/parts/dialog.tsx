/** Dialogs. One is open at a time; Escape and Back close it, and the focus returns to where it was. */

import { signal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import { describeError } from "../lib/api";
import { enterDialog, leaveDialog } from "../lib/route";
import { Button } from "./button";
import { Field } from "./field";

const open = signal<(() => JSX.Element) | undefined>(undefined);

/** Open a dialog and close the current one. */
export function openDialog(content: () => JSX.Element): void {
  open.value = content;
  enterDialog(() => (open.value = undefined));
}

/** Close the current dialog. */
export function closeDialog(): void {
  if (open.value === undefined) return;
  open.value = undefined;
  leaveDialog();
}

/** Whether a dialog is open. */
export const isDialogOpen = (): boolean => open.value !== undefined;

/** Container of the current dialog. */
export function Dialogs(): JSX.Element | null {
  const Content = open.value;
  return Content ? <Content /> : null;
}

/** Frame of a dialog. */
export function Dialog(props: { title: string; wide?: boolean; bare?: boolean; children: ComponentChildren }): JSX.Element {
  const ref = useRef<HTMLDialogElement>(null);
  const title = useId();
  // A layout effect, so that keys pressed right after opening already reach the dialog.
  useLayoutEffect(() => {
    const before = document.activeElement;
    const dialog = ref.current!;
    dialog.showModal();
    (dialog.querySelector("[data-first]") as HTMLElement | null)?.focus();
    return () => {
      dialog.close();
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={ref}
      class={`dialog ${props.wide ? "wide" : ""} ${props.bare ? "bare" : ""}`}
      aria-labelledby={title}
      onCancel={(event) => {
        event.preventDefault();
        closeDialog();
      }}
      onMouseDown={(event) => event.target === ref.current && closeDialog()}
    >
      <div class="dialog-body">
        <header class={props.bare ? "unseen" : ""}>
          <h2 id={title}>{props.title}</h2>
          <Button icon="close" kind="quiet" label="Close" onClick={closeDialog} tab={-1} />
        </header>
        {props.children}
      </div>
    </dialog>
  );
}

/** Form in a dialog. Sends once at a time and shows errors. */
export function Form(props: {
  act: string;
  kind?: "main" | "bad";
  ready?: boolean;
  /** A second submit button. */
  more?: { act: string; run: () => Promise<void> };
  run: () => Promise<void>;
  children: ComponentChildren;
}): JSX.Element {
  const [busy, setBusy] = useState(false);
  const [wrong, setWrong] = useState<{ message: string; hint: string }>();
  const send = async (run: () => Promise<void>): Promise<void> => {
    setBusy(true);
    setWrong(undefined);
    try {
      await run();
    } catch (error) {
      setWrong(describeError(error));
      setBusy(false);
    }
  };
  return (
    <form
      class="form"
      onSubmit={(event) => {
        event.preventDefault();
        if (!busy && props.ready !== false) void send(props.run);
      }}
    >
      {props.children}
      {wrong && (
        <p class="wrong" role="alert">
          {wrong.message}
          {wrong.hint && <span>{wrong.hint}</span>}
        </p>
      )}
      <footer>
        <Button kind="quiet" onClick={closeDialog}>
          Cancel
        </Button>
        {props.more && (
          <Button disabled={busy || props.ready === false} onClick={() => void send(props.more!.run)}>
            {props.more.act}
          </Button>
        )}
        <Button submit kind={props.kind ?? "main"} disabled={busy || props.ready === false}>
          {props.act}
        </Button>
      </footer>
    </form>
  );
}

/** Ask the user to type a name before an irreversible action. */
export function confirmByName(props: {
  title: string;
  name: string;
  label: string;
  act: string;
  run: () => Promise<void>;
}): void {
  openDialog(() => {
    const [typed, setTyped] = useState("");
    return (
      <Dialog title={props.title}>
        <Form
          act={props.act}
          kind="bad"
          ready={typed === props.name}
          run={async () => {
            await props.run();
            closeDialog();
          }}
        >
          <p>{props.label}</p>
          <Field
            label={`Type ${props.name} to confirm`}
            value={typed}
            set={setTyped}
            placeholder={props.name}
            mono
            first
          />
        </Form>
      </Dialog>
    );
  });
}

/** Ask the user to confirm an action. */
export function confirm(props: { title: string; label: string; items?: string[]; act: string; run: () => Promise<void> }): void {
  openDialog(() => (
    <Dialog title={props.title}>
      <Form
        act={props.act}
        kind="bad"
        run={async () => {
          await props.run();
          closeDialog();
        }}
      >
        <p data-first tabIndex={-1}>
          {props.label}
        </p>
        {props.items && (
          <ul class="items">
            {props.items.map((item) => (
              <li key={item} class="mono">
                {item}
              </li>
            ))}
          </ul>
        )}
      </Form>
    </Dialog>
  ));
}

/** Ask the user for a text. */
export function ask(props: {
  title: string;
  label: string;
  value?: string;
  act: string;
  note?: string;
  run: (value: string) => Promise<void>;
}): void {
  openDialog(() => {
    const [value, setValue] = useState(props.value ?? "");
    return (
      <Dialog title={props.title}>
        <Form
          act={props.act}
          ready={value.trim() !== "" && value !== props.value}
          run={async () => {
            await props.run(value);
            closeDialog();
          }}
        >
          <Field
            label={props.label}
            value={value}
            set={setValue}
            mono
            first
            {...(props.note === undefined ? {} : { note: props.note })}
          />
        </Form>
      </Dialog>
    );
  });
}
