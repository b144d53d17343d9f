/** Login page. */

import { Isolet, IsoletError } from "@isolet/sdk";
import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { describeError } from "../lib/api";
import { setRemembered, signIn } from "../lib/key";
import { Button } from "../parts/button";
import { Field } from "../parts/field";

/** Why the previous key was rejected. */
export const refused = signal<{ message: string; hint: string } | undefined>(undefined);

/** The page. */
export function Login(): JSX.Element {
  const [typed, setTyped] = useState("");
  const [remember, setRemember] = useState(false);
  const [busy, setBusy] = useState(false);
  const failure = refused.value;
  useEffect(() => document.querySelector<HTMLInputElement>("[data-first]")?.focus(), []);
  const send = async (): Promise<void> => {
    const secret = typed.trim();
    if (secret === "" || busy) return;
    setBusy(true);
    refused.value = undefined;
    try {
      await new Isolet({ url: location.origin, apiKey: secret }).send("/v1/sandboxes?limit=1");
      setRemembered(remember, secret);
      signIn(secret, remember);
    } catch (error) {
      const invalidKey = error instanceof IsoletError && error.status === 401;
      refused.value = invalidKey
        ? { message: "This key is not valid for this server", hint: "Check for spaces and missing characters, or copy the key from the file below." }
        : describeError(error);
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
        <p class="dim">Sandboxes with persistent shells, on {location.host}</p>
        <Field label="API key" value={typed} set={setTyped} type="password" mono first />
        {failure && (
          <p class="wrong" role="alert">
            {failure.message}
            {failure.hint && <span>{failure.hint}</span>}
          </p>
        )}
        <label class="check">
          <input type="checkbox" checked={remember} onChange={(event) => setRemember(event.currentTarget.checked)} />
          <span>Remember the key on this device</span>
        </label>
        <Button submit kind="main" disabled={busy || typed.trim() === ""}>
          {busy ? "Signing in …" : "Sign in"}
        </Button>
        <div class="where">
          <p>To find the key, run this on the server's machine:</p>
          <pre>sudo cat /var/lib/isolet/key</pre>
          <p>
            or read the file <code>key</code> in its data directory. <code>isolet keys add --label NAME</code> creates
            another key. The address that the server printed at its first start contains the key.
          </p>
        </div>
      </form>
    </main>
  );
}
