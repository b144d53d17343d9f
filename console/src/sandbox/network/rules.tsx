/** Rules of a sandbox's network, which can be added and removed one by one. */

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { mayChange } from "../../lib/access";
import { attempt, notifySuccess } from "../../lib/notice";
import { words } from "../../lib/parse";
import { Button } from "../../parts/button";
import type { Change, Network } from "./tab";

/** Both lists. */
export function Rules({ of, change }: { of: Network; change: Change }): JSX.Element {
  return (
    <>
      {of.mode === "rules" && <List title="Allowed" list="allow" rules={of.allow} change={change} empty="Nothing is allowed." />}
      <List title="Denied" list="deny" rules={of.deny} change={change} empty={of.mode === "open" ? "Nothing is denied." : "Nothing is denied; what no rule allows is refused anyway."} />
    </>
  );
}

function List(props: { title: string; list: "allow" | "deny"; rules: string[]; change: Change; empty: string }): JSX.Element {
  const { title, list, rules, change, empty } = props;
  const [typed, setTyped] = useState("");
  const apply = (json: Record<string, unknown>): Promise<boolean | undefined> =>
    attempt("Could not change the network", async () => {
      await change(json);
      return true;
    });
  const add = async (): Promise<void> => {
    const all = words(typed);
    if (all.length > 0 && (await apply({ [`${list}_add`]: all }))) setTyped("");
  };
  const remove = async (rule: string): Promise<void> => {
    if (await apply({ [`${list}_remove`]: [rule] })) notifySuccess(`${rule} was removed`);
  };
  return (
    <section class="facts" aria-label={title}>
      <h2>{title}</h2>
      {rules.length === 0 && <p class="none">{empty}</p>}
      <ul class="rules">
        {rules.map((rule) => (
          <li key={rule}>
            <code>{rule}</code>
            <Button icon="close" kind="quiet" changes label={`Remove ${rule}`} onClick={() => void remove(rule)} />
          </li>
        ))}
      </ul>
      {mayChange.value && (
        <form
          class="add"
          onSubmit={(event) => {
            event.preventDefault();
            void add();
          }}
        >
          <input class="mono" aria-label={`Rule to add to ${title.toLowerCase()}`} placeholder="example.com:443" value={typed} autoComplete="off" autoCapitalize="off" spellcheck={false} onInput={(event) => setTyped(event.currentTarget.value)} />
          <Button submit disabled={typed.trim() === ""}>
            Add
          </Button>
        </form>
      )}
    </section>
  );
}
