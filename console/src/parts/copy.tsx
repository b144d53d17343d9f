/** A text that is meant to be copied, with a button. */

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { attempt } from "../lib/notice";
import { Button } from "./button";

/** The text. */
export function Copy({ text, label }: { text: string; label: string }): JSX.Element {
  const [copied, setCopied] = useState(false);
  const copy = async (): Promise<void> => {
    const done = await attempt("Could not copy", async () => {
      if (!("clipboard" in navigator)) throw new Error("a browser allows this only for HTTPS; select the text and press Ctrl C");
      await navigator.clipboard.writeText(text);
      return true;
    });
    if (done) setCopied(true);
  };
  return (
    <div class="copy">
      <code tabIndex={0}>{text}</code>
      <Button onClick={() => void copy()} hint={label}>
        {copied ? "Copied" : "Copy"}
      </Button>
    </div>
  );
}
