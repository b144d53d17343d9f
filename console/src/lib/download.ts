/** Files that leave the page for the person's disk. */

import { UNSEEN } from "./format";

/** Hands over what is here already. */
export function saved(blob: Blob, name: string): void {
  // The type is the browser's word for "do not show it": it is a tenant's file.
  const url = URL.createObjectURL(new Blob([blob], { type: "application/octet-stream" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name.replace(UNSEEN, "_").replace(/[/\\]/g, "_");
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
