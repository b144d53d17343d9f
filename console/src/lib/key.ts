/** API key of the console: where it comes from and where it is stored. */

import { signal } from "@preact/signals";

const NAME = "isolet.key";

/** Current key; `undefined` when signed out. */
export const key = signal<string | undefined>(initialKey());

/** Whether the key is stored after the tab is closed. */
export const remembered = signal(stored(localStorage) !== undefined);

function stored(store: Storage): string | undefined {
  try {
    return store.getItem(NAME) ?? undefined;
  } catch {
    return undefined;
  }
}

/** Prefer a key in the URL fragment, and remove it from the address bar at once. */
function initialKey(): string | undefined {
  const fragment = /^#(?:.*&)?key=([^&]+)/.exec(location.hash)?.[1];
  if (fragment === undefined) return stored(sessionStorage) ?? stored(localStorage);
  history.replaceState(null, "", location.pathname + location.search);
  let secret = fragment;
  try {
    secret = decodeURIComponent(fragment);
  } catch {
    // Not percent-encoded.
  }
  sessionStorage.setItem(NAME, secret);
  return secret;
}

/** Use the key of another tab of this console, in this tab. */
export function signInHere(secret: string): void {
  sessionStorage.setItem(NAME, secret);
  key.value = secret;
}

/** Use a key that the server has accepted. */
export function signIn(secret: string, remember: boolean): void {
  sessionStorage.setItem(NAME, secret);
  setRemembered(remember, secret);
  key.value = secret;
}

/** Store the key on this device, or remove it. */
export function setRemembered(remember: boolean, secret = key.value): void {
  if (remember && secret !== undefined) localStorage.setItem(NAME, secret);
  else localStorage.removeItem(NAME);
  remembered.value = remember;
}

/** Remove the key. */
export function signOut(): void {
  sessionStorage.removeItem(NAME);
  localStorage.removeItem(NAME);
  remembered.value = false;
  key.value = undefined;
}

// The user opened a link with another key in this tab.
addEventListener("hashchange", () => {
  if (/^#(?:.*&)?key=/.test(location.hash)) {
    key.value = initialKey();
  }
});
