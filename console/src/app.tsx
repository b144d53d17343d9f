/** Frame around every page: header, connection banner, footer and global keyboard shortcuts. */

import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useState } from "preact/hooks";
import { client } from "./lib/api";
import { streamState as events, retry } from "./lib/events";
import { plural } from "./lib/format";
import { health } from "./lib/health";
import { bind } from "./lib/keys";
import { key, setRemembered, remembered, signOut } from "./lib/key";
import { go, link, route } from "./lib/route";
import { sorted } from "./lib/sandboxes";
import { dark, toggle } from "./lib/theme";
import { openCreate } from "./pages/create";
import { Login, refused } from "./pages/login";
import { SandboxPage } from "./pages/sandbox";
import { Sandboxes } from "./pages/sandboxes";
import { Button, Keys } from "./parts/button";
import { Dialogs } from "./parts/dialog";
import { openHelp } from "./parts/help";
import { Icon } from "./parts/icon";
import { Notices } from "./parts/notices";
import { openPalette } from "./parts/palette";

/** The whole console. */
export function App(): JSX.Element {
  useLayoutEffect(everywhere, []);
  useEffect(
    () =>
      events.subscribe((now) => {
        // The key was valid and has been revoked or has expired.
        if (now.state === "refused" && key.peek() !== undefined) {
          refused.value = { message: "This key is not valid for this server", hint: now.why };
          signOut();
        }
      }),
    [],
  );
  if (!client.value) {
    return (
      <>
        <Login />
        <Notices />
      </>
    );
  }
  const here = route.value;
  document.title = here.page === "sandbox" ? `${here.id} · Isolet` : "Isolet";
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => (event.preventDefault(), document.getElementById("main")?.focus())}>
        Skip to content
      </a>
      <Header />
      <ServerLost />
      {here.page === "sandboxes" ? <Sandboxes /> : <SandboxPage key={here.id} id={here.id} tab={here.tab} name={here.name} />}
      <Footer />
      <Dialogs />
      <Notices />
    </>
  );
}

function everywhere(): () => void {
  const palette = (event: KeyboardEvent): void => {
    const chord = (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && event.key.toLowerCase() === "k";
    // In a terminal, Ctrl-K belongs to the shell; only ⌘-K opens the palette.
    const terminal = event.target instanceof HTMLElement && event.target.closest(".xterm") !== null;
    if (!chord || !client.peek() || (terminal && !event.metaKey)) return;
    event.preventDefault();
    openPalette();
  };
  addEventListener("keydown", palette, { capture: true });
  const unbind = bind([
    { keys: "?", label: "Keyboard shortcuts", run: openHelp },
    { keys: "n", label: "New sandbox", run: openCreate },
    { keys: "/", label: "Filter", run: () => document.getElementById("filter")?.focus() },
    { keys: "g s", label: "Go to all sandboxes", run: () => go("sandboxes") },
    { keys: "g h", label: "Go to server health", run: () => document.getElementById("health")?.focus() },
  ]);
  return () => {
    removeEventListener("keydown", palette, { capture: true });
    unbind();
  };
}

function Header(): JSX.Element {
  const here = route.value;
  return (
    <header class="top">
      <nav aria-label="Breadcrumb">
        <a class="brand" href={link("sandboxes")}>
          <span class="mark" aria-hidden="true">
            ❯_
          </span>
          Isolet
        </a>
        {here.page === "sandbox" && (
          <>
            <Icon icon="right" />
            <a class="here" href={link("sandboxes", here.id)}>
              {here.id}
            </a>
          </>
        )}
      </nav>
      <div class="tools">
        <button type="button" class="palette-open" onClick={openPalette} aria-label="Command palette">
          <Icon icon="search" />
          <span>Go to …</span>
          <Keys of="Ctrl K" />
        </button>
        <Button icon="keys" kind="quiet" label="Keyboard shortcuts (?)" onClick={openHelp} />
        <Button icon={dark.value ? "sun" : "moon"} kind="quiet" label={dark.value ? "Use light theme" : "Use dark theme"} onClick={toggle} />
        <Button icon="exit" kind="quiet" label="Sign out" onClick={signOut} />
      </div>
    </header>
  );
}

/** Banner while the server is not responding. */
function ServerLost(): JSX.Element | null {
  const now = events.value;
  const [, tick] = useState(0);
  useEffect(() => {
    if (now.state !== "lost") return;
    const timer = setInterval(() => tick((n) => n + 1), 250);
    return () => clearInterval(timer);
  }, [now]);
  if (now.state !== "lost") return null;
  const left = Math.max(Math.ceil((now.next - Date.now()) / 1000), 0);
  return (
    <div class="lost" role="status">
      <p>
        <strong>The server is not responding.</strong> Sandboxes keep running.{" "}
        {left > 0 ? `Retrying in ${left} s.` : "Retrying …"}
      </p>
      <Button onClick={retry}>Retry now</Button>
    </div>
  );
}

function Footer(): JSX.Element {
  const word = health.value;
  const state = events.value.state;
  const all = sorted.value;
  const of = (state: string): number => all.filter((one) => one.state === state).length;
  const counts = ["running", "paused", "sleeping", "failed", "unreachable"].map((state) => [state, of(state)] as const);
  const good = state === "live" && word?.status === "ok";
  const label = state === "lost" ? "not reachable" : state === "connecting" ? "connecting" : (word?.status ?? "…");
  return (
    <footer class="bottom">
      <span id="health" tabIndex={-1} class={`health ${good ? "good" : state === "connecting" ? "" : "bad"}`}>
        <i aria-hidden="true" />
        server {label}
      </span>
      {word && <span>v{word.version}</span>}
      <span class="counts">
        {plural(all.length, "sandbox", "sandboxes")}
        {counts
          .filter(([, count]) => count > 0)
          .map(([state, count]) => ` · ${count} ${state}`)
          .join("")}
      </span>
      <label class="check small" title="The key stays in this browser after the tab is closed">
        <input type="checkbox" checked={remembered.value} onChange={(event) => setRemembered(event.currentTarget.checked)} />
        <span>Remember the key on this device</span>
      </label>
    </footer>
  );
}
