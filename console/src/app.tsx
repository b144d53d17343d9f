/** The whole console: the frame around every page, and global keyboard shortcuts. */

import type { JSX } from "preact";
import { useEffect, useLayoutEffect } from "preact/hooks";
import { Footer } from "./frame/footer";
import { Header } from "./frame/header";
import { ServerLost } from "./frame/lost";
import { OtherKey } from "./frame/other-key";
import { client } from "./lib/api";
import { streamState as events } from "./lib/events";
import { awaitsKey } from "./lib/handover";
import { bind } from "./lib/keys";
import { key, offered, signOut } from "./lib/key";
import { go, PAGES, route, type Route } from "./lib/route";
import { AuditPage } from "./pages/audit/page";
import { EventsPage } from "./pages/events/page";
import { ImagesPage } from "./pages/images/page";
import { KeysPage } from "./pages/keys/page";
import { Login, refused } from "./pages/login";
import { openCreate } from "./pages/sandboxes/create";
import { Sandboxes } from "./pages/sandboxes/list";
import { SnapshotsPage } from "./pages/snapshots/page";
import { Dialogs, openDialog } from "./parts/dialog";
import { openHelp } from "./parts/help";
import { Notices } from "./parts/notices";
import { openPalette } from "./parts/palette";
import { SandboxPage } from "./sandbox/page";

/** The whole console. */
export function App(): JSX.Element | null {
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
  useEffect(() => offered.subscribe((secret) => secret !== undefined && openDialog(() => <OtherKey />)), []);
  if (!client.value) {
    if (awaitsKey.value) return null;
    return (
      <>
        <Login />
        <Notices />
      </>
    );
  }
  const here = route.value;
  document.title = title(here);
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => (event.preventDefault(), document.getElementById("main")?.focus())}>
        Skip to content
      </a>
      <Header />
      <ServerLost />
      <Content here={here} />
      <Footer />
      <Dialogs />
      <Notices />
    </>
  );
}

function title(here: Route): string {
  if (here.page === "sandbox") return `${here.id} · Isolet`;
  const page = PAGES.find((one) => one.page === here.page);
  return page && page.page !== "sandboxes" ? `${page.name} · Isolet` : "Isolet";
}

function Content({ here }: { here: Route }): JSX.Element {
  switch (here.page) {
    case "sandbox":
      return <SandboxPage key={here.id} id={here.id} tab={here.tab} name={here.name} />;
    case "images":
      return <ImagesPage />;
    case "snapshots":
      return <SnapshotsPage rest={here.rest} />;
    case "events":
      return <EventsPage />;
    case "audit":
      return <AuditPage />;
    case "keys":
      return <KeysPage />;
    default:
      return <Sandboxes />;
  }
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
    ...PAGES.map(({ page, name, key }) => ({ keys: `g ${key}`, label: `Go to ${name.toLowerCase()}`, run: () => go(page) })),
    { keys: "g h", label: "Go to server health", run: () => document.getElementById("health")?.focus() },
  ]);
  return () => {
    removeEventListener("keydown", palette, { capture: true });
    unbind();
  };
}
