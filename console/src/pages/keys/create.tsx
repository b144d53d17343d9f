/** Dialog for a new key, which then shows its secret once. */

import { useState } from "preact/hooks";
import { api } from "../../lib/api";
import { moment } from "../../lib/format";
import { defined, seconds } from "../../lib/parse";
import { Button } from "../../parts/button";
import { Copy } from "../../parts/copy";
import { closeDialog, Dialog, Form, openDialog } from "../../parts/dialog";
import { Check, Field } from "../../parts/field";
import type { ApiKey } from "./page";

/** Open the dialog. */
export function openKey(done: () => Promise<void>): void {
  openDialog(() => {
    const [label, setLabel] = useState("");
    const [lifetime, setLifetime] = useState("");
    const [readOnly, setReadOnly] = useState(false);
    const [made, setMade] = useState<ApiKey & { secret: string }>();
    const create = async (): Promise<void> => {
      const json = defined({ label: label.trim() || undefined, ttl_s: seconds("lifetime", lifetime), read_only: readOnly || undefined });
      setMade(await api().json("/v1/keys", { json }));
      await done();
    };
    if (made) {
      return (
        <Dialog title="The new key">
          <div class="form">
            <p>
              Copy it now: the server stores only its hash and cannot show it again.
              {made.expires_at_ms !== null && ` It expires at ${moment(made.expires_at_ms)}.`}
            </p>
            <Copy text={made.secret} label="Copy the key" />
            <footer>
              <Button kind="main" onClick={closeDialog}>
                Done
              </Button>
            </footer>
          </div>
        </Dialog>
      );
    }
    return (
      <Dialog title="New key">
        <Form act="Create" run={create}>
          <div class="fields">
            <Field label="Label" value={label} set={setLabel} placeholder="laptop" first />
            <Field label="Lifetime" value={lifetime} set={setLifetime} placeholder="that of this key" mono />
          </div>
          <Check value={readOnly} set={setReadOnly}>
            Allow only calls that read
          </Check>
          <p class="note">The key belongs to the same tenant as yours, and expires no later than yours.</p>
        </Form>
      </Dialog>
    );
  });
}
