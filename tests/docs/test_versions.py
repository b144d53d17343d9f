"""The page about upgrades names the versions that this release has."""

from __future__ import annotations

import re

from conftest import ROOT

PAGE = (ROOT / "docs/upgrade.md").read_text()


def _constant(name: str) -> int:
    text = (ROOT / "crates/wire/src/version.rs").read_text()
    found = re.search(rf"pub const {name}: u16 = (\d+);", text)
    assert found, name
    return int(found[1])


def test_the_page_names_the_versions_of_the_protocol() -> None:
    oldest, current = _constant("OLDEST_AGENT"), _constant("VERSION")
    assert f"The current version is {current}, and this release works with the versions {oldest} to {current}." in PAGE
    ranges = set(re.findall(r"\| (?:accepts owners of )?(\d+ to \d+) \|", PAGE))
    assert ranges == {f"{oldest} to {current}"}
