"""The page of the commands, from the help of the built program."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

_HEAD = """\
# Commands

This page is the output of `isolet … --help` for each command. `isolet help COMMAND` shows the same in a terminal, and \
the packages install man pages.
"""
_COMMAND = re.compile(r"^  ([a-z][a-z-]*)(?:  |$)", re.MULTILINE)


def program(root: Path) -> Path:
    """The built program: that of ISOLET_PROGRAMS, or the newest of `make programs` and `make build`.

    Raises:
        FileNotFoundError: none was built.
    """
    named = os.environ.get("ISOLET_PROGRAMS")
    folders = [Path(named)] if named else [root / "target/programs", root / "dist"]
    built = [folder / "isolet" for folder in folders if (folder / "isolet").exists()]
    if built:
        return max(built, key=lambda file: file.stat().st_mtime)
    raise FileNotFoundError("no built program: run `make programs` or `make build`, or set ISOLET_PROGRAMS")


def page(isolet: Path) -> str:
    """The help of all commands as Markdown."""
    return _HEAD + "".join(
        f"\n## {' '.join(['isolet', *words])}\n\n```text\n{text.strip()}\n```\n" for words, text in _all(isolet, [])
    )


def _all(isolet: Path, words: list[str]) -> Iterator[tuple[list[str], str]]:
    text = _help(isolet, words)
    yield words, text
    for name in _COMMAND.findall(_commands(text, words)):
        if name != "help":
            yield from _all(isolet, [*words, name])


def _commands(text: str, words: list[str]) -> str:
    """The part of a help that lists commands. That of the program itself has them in groups."""
    if not words:
        return text.partition("\nOptions:\n")[0]
    return text.partition("\nCommands:\n")[2].partition("\n\n")[0]


def _help(isolet: Path, words: list[str]) -> str:
    # Help shows the values of variables that are set.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ISOLET_")}
    command = [isolet, *words, "--help"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=30)
    return done.stdout
