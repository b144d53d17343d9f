/**
 * The key for links of the console that the user opens in a new tab (Ctrl-click, middle click, context menu).
 * A new tab has a session storage of its own, so it asks the tab that it was opened from. That tab answers only
 * for an address that was just opened this way, and only pages of this server's origin hear the answer.
 */

import { signal } from "@preact/signals";
import { key, signInHere } from "./key";

const CHANNEL = "isolet.handover";
/** How long an address that was opened may ask, in milliseconds. A context menu stays open for a while. */
const OFFER_MS = { click: 10_000, menu: 60_000 };
/** How long a new tab waits before it shows the login page. */
const WAIT_MS = 400;

type Message = { wants: string } | { gives: string; key: string };

/** Whether this tab waits for the key of another tab. */
export const awaitsKey = signal(key.peek() === undefined && location.hash.startsWith("#/"));

const offers = new Map<string, number>();

function offer(event: MouseEvent, ms: number): void {
  const link = event.target instanceof Element ? event.target.closest<HTMLAnchorElement>('a[href^="#/"]') : null;
  if (link) offers.set(link.hash, Date.now() + ms);
}

/** Start offering the key to new tabs, and ask for one if this tab has none. */
export function start(): void {
  const channel = new BroadcastChannel(CHANNEL);
  channel.onmessage = ({ data }: MessageEvent<Message>) => {
    if ("wants" in data) {
      const secret = key.peek();
      const until = offers.get(data.wants) ?? 0;
      offers.delete(data.wants);
      if (secret !== undefined && Date.now() < until) channel.postMessage({ gives: data.wants, key: secret } satisfies Message);
    } else if (awaitsKey.peek() && data.gives === location.hash) {
      signInHere(data.key);
      awaitsKey.value = false;
    }
  };
  addEventListener("click", (event) => (event.ctrlKey || event.metaKey || event.shiftKey) && offer(event, OFFER_MS.click), { capture: true });
  addEventListener("auxclick", (event) => event.button === 1 && offer(event, OFFER_MS.click), { capture: true });
  addEventListener("contextmenu", (event) => offer(event, OFFER_MS.menu), { capture: true });
  if (!awaitsKey.peek()) return;
  channel.postMessage({ wants: location.hash } satisfies Message);
  setTimeout(() => (awaitsKey.value = false), WAIT_MS);
}
