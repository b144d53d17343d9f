/** The time, for ages that are shown: it moves on in steps, and stands still where nobody looks. */

import { signal } from "@preact/signals";

/** Now, in ms since 1970, to a second. */
export const now = signal(Date.now());

setInterval(() => {
  if (!document.hidden) now.value = Date.now();
}, 1000);
