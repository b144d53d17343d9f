/** Asks for a key, and says where it lies. */

import { Isolet, IsoletError } from "@isolet/sdk";
import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { told } from "../lib/api";
import { keep, signIn } from "../lib/key";
import { Button } from "../parts/button";
import { Field } from "../parts/dialog";

/** Why the key before was not taken. */
export const refused = signal<{ message: string; hint: string } | undefined>(undefined);

/** The page. */
export function Login(): JSX.Element {
  const [typed, setTyped] = useState("");
  const [remember, setRemember] = useState(false);
  const [busy, setBusy] = useState(false);
  const wrong = refused.value;
  useEffect(() => document.querySelector<HTMLInputElement>("[data-first]")?.focus(), []);
  const send = async (): Promise<void> => {
    const secret = typed.trim();
    if (secret === "" || busy) return;
    setBusy(true);
    refused.value = undefined;
    try {
      await new Isolet({ url: location.origin, apiKey: secret }).send("/v1/sandboxes?limit=1");
      keep(remember, secret);
      signIn(secret, remember);
    } catch (error) {
      const wrong_key = error instanceof IsoletError && error.status === 401;
      refused.value = wrong_key
        ? { message: "This key does not open this server", hint: "Look for a space or a missing letter, or take the key from the file below." }
        : told(error);
      setBusy(false);
    }
  };
  return (
    <main class="login">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void send();
        }}
      >
        <h1>
          <span class="mark" aria-hidden="true">
            ❯_
          </span>
          Isolet
        </h1>
        <p class="dim">Sandboxes with shells that stay, on {location.host}</p>
        <Field label="API key" value={typed} set={setTyped} type="password" mono first />
        {wrong && (
          <p class="wrong" role="alert">
            {wrong.message}
            {wrong.hint && <span>{wrong.hint}</span>}
          </p>
        )}
        <label class="check">
          <input type="checkbox" checked={remember} onChange={(event) => setRemember(event.currentTarget.checked)} />
          <span>Remember it on this device</span>
        </label>
        <Button submit kind="main" disabled={busy || typed.trim() === ""}>
          {busy ? "Signing in …" : "Sign in"}
        </Button>
        <div class="where">
          <p>Where is it? On the machine that runs the server:</p>
          <pre>sudo cat /var/lib/isolet/key</pre>
          <p>
            or in <code>key</code> of its data directory. <code>isolet keys add --label NAME</code> makes another. The
            address that the server printed at its first start opens this page without asking.
          </p>
        </div>
      </form>
    </main>
  );
}
