/** Clock for displayed ages. It stops while the page is hidden. */

import { signal } from "@preact/signals";

/** Current time in milliseconds since 1970, updated every second. */
export const now = signal(Date.now());

setInterval(() => {
  if (!document.hidden) now.value = Date.now();
}, 1000);
