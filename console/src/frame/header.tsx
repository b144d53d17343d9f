/** Top of every page: where the user is, the pages, and tools. */

import type { JSX } from "preact";
import { useLayoutEffect } from "preact/hooks";
import { signOut } from "../lib/key";
import { link, PAGES, route } from "../lib/route";
import { dark, toggle } from "../lib/theme";
import { Button, Keys } from "../parts/button";
import { openHelp } from "../parts/help";
import { Icon } from "../parts/icon";
import { openPalette } from "../parts/palette";

/** The header. */
export function Header(): JSX.Element {
  const here = route.value;
  const page = here.page === "sandbox" ? "sandboxes" : here.page;
  useLayoutEffect(() => {
    document.querySelector('.pages [aria-current="page"]')?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [page]);
  return (
    <header class="top">
      <a class="brand" href={link("sandboxes")}>
        <span class="mark" aria-hidden="true">
          ❯_
        </span>
        <span class="brand-name">Isolet</span>
      </a>
      <nav class="pages" aria-label="Pages">
        {PAGES.map((one) => (
          <a key={one.page} href={link(one.page)} aria-current={one.page === page ? "page" : undefined}>
            {one.name}
          </a>
        ))}
      </nav>
      <div class="tools">
        <button type="button" class="palette-open" onClick={openPalette} title="Command palette">
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
