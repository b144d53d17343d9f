/** Credentials of a sandbox: secrets that the egress proxy adds to requests. Their values are never shown. */

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { notifySuccess } from "../../lib/notice";
import { Button } from "../../parts/button";
import { closeDialog, confirm, Dialog, Form, openDialog } from "../../parts/dialog";
import { CredentialFields, credentialFields, NO_CREDENTIAL } from "./fields";
import type { Change, Network } from "./tab";

/** The list. */
export function Credentials({ sandbox, of, change }: { sandbox: string; of: Network; change: Change }): JSX.Element {
  const all = of.credentials ?? [];
  return (
    <section class="facts" aria-label="Credentials">
      <h2>Credentials</h2>
      {all.length === 0 && <p class="none">None. A credential is added to requests to its host, and programs in the sandbox cannot read it.</p>}
      <ul class="rules">
        {all.map((one) => (
          <li key={`${one.host} ${one.header} ${one.placeholder}`}>
            <code>{one.host}</code>
            <span class="dim">
              {one.header ?? "all headers"}
              {one.placeholder !== undefined && (
                <>
                  {" "}
                  in place of <code>{one.placeholder}</code>
                </>
              )}
            </span>
            {!one.allowed && (
              <span class="chip" title="The network rules do not allow the host">
                host not allowed
              </span>
            )}
            <Button
              icon="close"
              kind="quiet"
              changes
              label={`Remove the credential for ${one.host}`}
              onClick={() =>
                confirm({
                  title: "Remove credential",
                  label: `Requests to ${one.host} are sent without it from now on. The server forgets its value.`,
                  act: "Remove",
                  run: async () => {
                    const { host, header, placeholder } = one;
                    await change({ credentials_remove: [{ host, ...(header === undefined ? {} : { header }), ...(placeholder === undefined ? {} : { placeholder }) }] });
                    notifySuccess("the credential was removed");
                  },
                })
              }
            />
          </li>
        ))}
      </ul>
      <div class="add">
        <Button icon="plus" changes onClick={() => openAdd(sandbox, change)}>
          Add credential
        </Button>
      </div>
    </section>
  );
}

function openAdd(sandbox: string, change: Change): void {
  openDialog(() => {
    const [one, setOne] = useState(NO_CREDENTIAL);
    const send = async (): Promise<void> => {
      await change({ credentials_add: [credentialFields(one)] });
      closeDialog();
      notifySuccess("the credential was added");
    };
    return (
      <Dialog title={`Add a credential to ${sandbox}`}>
        <Form act="Add" ready={one.host.trim() !== "" && one.value !== ""} run={send}>
          <CredentialFields value={one} set={setOne} first />
          <p class="note">
            The header is set to the value in each request to the host. With a placeholder, only the placeholder is replaced
            in headers that the sandbox sends.
          </p>
        </Form>
      </Dialog>
    );
  });
}
