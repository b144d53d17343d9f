/** When a page has reason to look after its connections. */

interface Target {
  addEventListener(event: string, listener: () => void): void;
  removeEventListener(event: string, listener: () => void): void;
  visibilityState?: string;
}

/** Calls `listener` when the browser says that the network is back, or shows the page again; where
 *  there is no browser, never. Ends when what this returns is called. */
export function onWake(listener: () => void): () => void {
  const { window, document } = globalThis as { window?: Target; document?: Target };
  const shown = (): void => void (document?.visibilityState === "visible" && listener());
  window?.addEventListener?.("online", listener);
  document?.addEventListener?.("visibilitychange", shown);
  return () => {
    window?.removeEventListener?.("online", listener);
    document?.removeEventListener?.("visibilitychange", shown);
  };
}
