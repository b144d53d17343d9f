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


def test_the_page_names_the_schemas_of_the_records() -> None:
    last = max(int(file.stem) for file in (ROOT / "crates/store/tests/schemas").glob("*.sql"))
    table = PAGE.partition("| schema | since |")[2]
    assert max(map(int, re.findall(r"^\| (\d+) \|", table, re.MULTILINE))) == last
    assert f"has schema {last + 1}, and this is" in PAGE and f"supports schema {last} at most" in PAGE
