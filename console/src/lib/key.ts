/** The key that opens the server: where it comes from, and where it is kept. */

import { signal } from "@preact/signals";

const NAME = "isolet.key";

/** The key in use. */
export const key = signal<string | undefined>(found());

/** Whether it is kept after this tab is closed. */
export const remembered = signal(kept(localStorage) !== undefined);

function kept(store: Storage): string | undefined {
  try {
    return store.getItem(NAME) ?? undefined;
  } catch {
    return undefined;
  }
}

/** A key in the fragment goes first, and out of the address bar before anything else happens. */
function found(): string | undefined {
  const fragment = /^#(?:.*&)?key=([^&]+)/.exec(location.hash)?.[1];
  if (fragment === undefined) return kept(sessionStorage) ?? kept(localStorage);
  history.replaceState(null, "", location.pathname + location.search);
  let told = fragment;
  try {
    told = decodeURIComponent(fragment);
  } catch {
    // Not encoded then.
  }
  sessionStorage.setItem(NAME, told);
  return told;
}

/** Takes a key that the server has accepted. */
export function signIn(told: string, remember: boolean): void {
  sessionStorage.setItem(NAME, told);
  keep(remember, told);
  key.value = told;
}

/** Keeps the key on this device, or no more. */
export function keep(remember: boolean, told = key.value): void {
  if (remember && told !== undefined) localStorage.setItem(NAME, told);
  else localStorage.removeItem(NAME);
  remembered.value = remember;
}

/** Forgets the key. */
export function signOut(): void {
  sessionStorage.removeItem(NAME);
  localStorage.removeItem(NAME);
  remembered.value = false;
  key.value = undefined;
}

// A link with another key, opened in this tab.
addEventListener("hashchange", () => {
  if (/^#(?:.*&)?key=/.test(location.hash)) {
    key.value = found();
  }
});
