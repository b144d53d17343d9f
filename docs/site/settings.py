"""The page of the configuration, from the commented config/isolet.toml."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_SECTION = re.compile(r"(?:# )?(\[[a-z_.A-Z]+\])$")
_SETTING = re.compile(r"(# )?([a-z_]+|\"[^\"]+\") = (.*)$")

_HEAD = """\
# Configuration

`isolet serve` reads a TOML file: the one of `--config FILE`, of `ISOLET_CONFIG`, or `/etc/isolet/isolet.toml`. A \
flag overrides an `ISOLET_*` variable, and a variable overrides the file. `isolet serve --print-config` shows the \
settings in force, and `isolet doctor` checks them. This page is generated from the file that the packages install. \
The [commands](cli.md#isolet-serve) list the flags and variables.
"""


@dataclass
class _Section:
    """A table of the file."""

    name: str
    text: str
    rows: list[tuple[list[str], list[str], str]] = field(default_factory=list)


def page(text: str) -> str:
    """Convert the commented file to Markdown."""
    sections = [_Section("The server", "")]
    comment: list[str] = []
    after_setting = False
    # The comment at the head is about the file.
    for line in text.partition("\n\n")[2].splitlines():
        if section := _SECTION.match(line):
            sections.append(_Section(section[1], " ".join(comment)))
            comment = []
        elif setting := _SETTING.match(line):
            rows = sections[-1].rows
            if comment or not rows or not after_setting:
                rows.append(([], [], " ".join(comment)))
            rows[-1][0].append(setting[2])
            rows[-1][1].append(setting[3])
            comment = []
            after_setting = True
            continue
        elif line.startswith("#"):
            comment.append(line.removeprefix("#").strip())
        else:
            comment = []
        after_setting = False
    return _HEAD + "".join(_table(section) for section in sections)


def _table(section: _Section) -> str:
    title = f"`{section.name}`" if section.name.startswith("[") else section.name
    lines = [f"\n## {title}\n\n{_escaped(section.text)}\n"] if section.text else [f"\n## {title}\n"]
    lines.append("\n| setting | default or example | meaning |\n|---|---|---|\n")
    for names, values, text in section.rows:
        shown = [", ".join(f"`{one}`" for one in column) for column in (names, values)]
        lines.append(f"| {shown[0]} | {shown[1]} | {_escaped(text)} |\n")
    return "".join(lines)


def _escaped(text: str) -> str:
    return re.sub(r"\((docs/([a-z-]+)\.md)\)", r"([\2](../\2.md))", text).replace("|", "\\|").replace("<", "&lt;")
