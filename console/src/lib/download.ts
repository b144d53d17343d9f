/** Saving files to the user's disk. */

import { UNSEEN } from "./format";

/** Save a blob. */
export function saveFile(blob: Blob, name: string): void {
  // This type makes the browser download the file instead of showing it: its content is untrusted.
  const url = URL.createObjectURL(new Blob([blob], { type: "application/octet-stream" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name.replace(UNSEEN, "_").replace(/[/\\]/g, "_");
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
