/** Detects when a web page should check its connections. */

interface Target {
  addEventListener(event: string, listener: () => void): void;
  removeEventListener(event: string, listener: () => void): void;
  visibilityState?: string;
}

/**
 * Call `listener` when the browser comes online or the page becomes visible. Without a browser, never.
 *
 * @returns a function that removes the listener.
 */
export function onPageActivity(listener: () => void): () => void {
  const { window, document } = globalThis as { window?: Target; document?: Target };
  const shown = (): void => void (document?.visibilityState === "visible" && listener());
  window?.addEventListener?.("online", listener);
  document?.addEventListener?.("visibilitychange", shown);
  return () => {
    window?.removeEventListener?.("online", listener);
    document?.removeEventListener?.("visibilitychange", shown);
  };
}
