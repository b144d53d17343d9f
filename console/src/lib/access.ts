/** What the current key allows. Controls that change something are shown only to keys that may do it. */

import { computed, signal } from "@preact/signals";
import { IsoletError } from "@isolet/sdk";
import { api, client } from "./api";

/** The key that the console uses. */
export interface CurrentKey {
  /** `null` for the key from the server's environment. */
  id: string | null;
  tenant: string;
  read_only: boolean;
}

/** The current key; `undefined` until the server has answered. */
export const current = signal<CurrentKey | undefined>(undefined);

/** Whether the key is known to be one that may change something. */
export const mayChange = computed(() => current.value?.read_only === false);

/** Whether the key is known to be one that may only read. */
export const readOnly = computed(() => current.value?.read_only === true);

/** Delays between attempts to read the key. */
const RETRY_MS = 2000;

async function ask(): Promise<void> {
  const mine = client.peek();
  if (!mine) return;
  try {
    const found = await api().json<CurrentKey>("/v1/keys/current");
    if (client.peek() === mine) current.value = found;
  } catch (error) {
    if (client.peek() !== mine) return;
    if (error instanceof IsoletError && error.status === 401) return;
    setTimeout(() => void ask(), RETRY_MS);
  }
}

/** Start following the key. */
export function start(): void {
  client.subscribe(() => {
    current.value = undefined;
    void ask();
  });
}
