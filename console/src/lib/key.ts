/** API key of the console: where it comes from and where it is stored. */

import { signal } from "@preact/signals";

const NAME = "isolet.key";

/** Key of an address that was opened while another key is in use, until the user decides between them. */
export const offered = signal<string | undefined>(undefined);

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

/**
 * Use a key in the URL fragment, and remove it from the address bar at once. Such an address may come from
 * anybody, so it replaces no other key unless the user agrees.
 */
function initialKey(): string | undefined {
  const known = stored(sessionStorage) ?? stored(localStorage);
  const fragment = /^#(?:.*&)?key=([^&]+)/.exec(location.hash)?.[1];
  if (fragment === undefined) return known;
  history.replaceState(null, "", location.pathname + location.search);
  let secret = fragment;
  try {
    secret = decodeURIComponent(fragment);
  } catch {
    // Not percent-encoded.
  }
  if (known !== undefined && known !== secret) {
    offered.value = secret;
    return known;
  }
  sessionStorage.setItem(NAME, secret);
  return secret;
}

/** Use the key of the address that was opened. */
export function acceptOffered(): void {
  if (offered.value !== undefined) signInHere(offered.value);
  offered.value = undefined;
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

/** Remove the key. If the user was just asked about another one, that is used. */
export function signOut(): void {
  sessionStorage.removeItem(NAME);
  localStorage.removeItem(NAME);
  remembered.value = false;
  if (offered.value === undefined) key.value = undefined;
  else acceptOffered();
}

// The user opened a link with another key in this tab.
addEventListener("hashchange", () => {
  if (/^#(?:.*&)?key=/.test(location.hash)) {
    key.value = initialKey();
  }
});
