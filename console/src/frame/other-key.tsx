/** Question before the key of an address replaces the one in use. */

import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { current } from "../lib/access";
import { acceptOffered, offered } from "../lib/key";
import { closeDialog, Dialog, Form } from "../parts/dialog";

/** The dialog. Closing it keeps the key in use. */
export function OtherKey(): JSX.Element {
  useEffect(() => () => void (offered.value = undefined), []);
  const tenant = current.value?.tenant;
  return (
    <Dialog title="Sign in with another key?">
      <Form
        act="Use the other key"
        run={async () => {
          acceptOffered();
          closeDialog();
        }}
      >
        <p data-first tabIndex={-1}>
          You are signed in{tenant === undefined ? "" : ` for the tenant ${tenant}`}. The address that you opened contains
          another key. Use it only if you trust where the address came from: what you create or type then belongs to the
          owner of that key.
        </p>
      </Form>
    </Dialog>
  );
}
