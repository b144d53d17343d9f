"""The page about upgrades names the numbers that this version has."""

from __future__ import annotations

import re

from conftest import ROOT

PAGE = (ROOT / "docs/upgrade.md").read_text()


def _constant(file: str, name: str) -> int:
    text = (ROOT / file).read_text()
    found = re.search(rf"pub const {name}: u\d+ = (\d+);", text)
    assert found, name
    return int(found[1])


def test_the_pages_name_the_format_of_the_data_directory() -> None:
    number = _constant("crates/store/src/format.rs", "FORMAT")
    assert f"the file `format` in the data directory. It is now {number}." in PAGE
    assert f"programs say to each other, now {number}:" in (ROOT / "docs/data-directory.md").read_text()


def test_the_page_names_the_version_of_the_protocol() -> None:
    number = _constant("crates/wire/src/version.rs", "VERSION")
    assert f"the version of the wire protocol, which is now {number}," in PAGE
