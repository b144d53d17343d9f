#!/usr/bin/env python3
"""Checks that each promise of PROMISES.md has a test, and writes the index of both.

PROMISES.md lists one promise in each line: `- **S1** A command is data ...`. A test names the
promises that it holds in a marker directly above its attributes or decorators:

    /// Promises: S1, S3.        Rust
    # Promises: S1.              Python
    // Promises: S1, S3.         TypeScript

Without arguments the script writes tests/promises/INDEX.md. With `--check` it writes nothing and
fails when the index is stale, when a promise has no test or its number is used twice, when a
marker names an unknown promise, and when a marker is not at a test.

    promises.py [--check]
"""

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIST = Path("PROMISES.md")
INDEX = Path("tests/promises/INDEX.md")

FOLDERS = ("crates", "tests", "sdk")
# Other people's code and build products, and the tests of this script, which hold examples.
SKIPPED = {"node_modules", "target", "dist", "build", "tidy", "__pycache__"}

HEADING = re.compile(r"^## (.+)$")
PROMISE = re.compile(r"^- \*\*([A-Z]+\d+)\*\* (\S.*)$")
MARKER = re.compile(r"^\s*(?:///?|#) ?Promises?: *(.*)$")
IDS = re.compile(r"[A-Z]+\d+(?:, [A-Z]+\d+)*\.")

RUST_TEST = re.compile(r"\s*(?:pub )?(?:async )?fn (\w+)")
RUST_ATTRIBUTE = re.compile(r"#\[(?:\w+::)*test\b")
PYTHON_TEST = re.compile(r"\s*(?:async )?def (test_\w+)")
TYPESCRIPT_TEST = re.compile(r"\s*(?:test|it)(?:\.\w+)*\(\s*([\"'`])(.+?)\1")


@dataclass
class Section:
    """A heading of PROMISES.md and its promises, by number."""

    title: str
    promises: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, order=True)
class Test:
    file: str
    name: str


def read_list(text: str) -> tuple[list[Section], list[str]]:
    """The sections with their promises, and what is wrong with the list itself."""
    sections: list[Section] = []
    findings: list[str] = []
    numbers: set[str] = set()
    for line in text.splitlines():
        if heading := HEADING.match(line):
            sections.append(Section(heading[1]))
        elif promise := PROMISE.match(line):
            if promise[1] in numbers:
                findings.append(f"{LIST}: the number {promise[1]} is used twice")
            if not sections:
                findings.append(f"{LIST}: {promise[1]} stands under no heading")
                sections.append(Section(""))
            numbers.add(promise[1])
            sections[-1].promises[promise[1]] = promise[2]
        elif line.startswith("- **"):
            findings.append(f"{LIST}: not a promise in one line: {line}")
    return sections, findings


def sources(root: Path) -> Iterator[Path]:
    """The files that can hold tests, sorted."""
    for folder in FOLDERS:
        for directory, names, files in os.walk(root / folder):
            names[:] = sorted(name for name in names if name not in SKIPPED and not name.startswith("."))
            yield from (Path(directory, name) for name in sorted(files) if name.endswith((".rs", ".py", ".ts")))


def after_attributes(lines: list[str], index: int, opening: str) -> tuple[str, int]:
    """The text of the attributes or decorators that begin at a line, and the index behind them."""
    attributes: list[str] = []
    while index < len(lines) and lines[index].lstrip().startswith(opening):
        depth = 0
        while index < len(lines):
            line = lines[index]
            depth += sum(map(line.count, "([{")) - sum(map(line.count, ")]}"))
            attributes.append(line.strip())
            index += 1
            if depth <= 0:
                break
    return "\n".join(attributes), index


def test_at(suffix: str, lines: list[str], index: int) -> str | None:
    """The name of the test whose attributes, decorators or first line stand at a line."""
    if suffix == ".rs":
        attributes, index = after_attributes(lines, index, "#[")
        found = RUST_TEST.match("\n".join(lines[index : index + 1]))
        return found[1] if found and RUST_ATTRIBUTE.search(attributes) else None
    if suffix == ".py":
        _, index = after_attributes(lines, index, "@")
        found = PYTHON_TEST.match("\n".join(lines[index : index + 1]))
        return found[1] if found else None
    found = TYPESCRIPT_TEST.match("\n".join(lines[index : index + 2]))
    return found[2] if found else None


def read_markers(file: str, text: str) -> tuple[list[tuple[Test, list[str]]], list[str]]:
    """The tests of a file that have a marker, with their promises, and what is wrong with markers."""
    marked: list[tuple[Test, list[str]]] = []
    findings: list[str] = []
    if "Promise" not in text:
        return marked, findings
    lines = text.splitlines()
    for index, line in enumerate(lines):
        marker = MARKER.match(line)
        if marker is None:
            continue
        place = f"{file}:{index + 1}"
        name = test_at(Path(file).suffix, lines, index + 1)
        if not IDS.fullmatch(marker[1]) or "Promises:" not in line:
            findings.append(f"{place}: a marker reads `Promises: S1, S3.`, this one: {line.strip()}")
        elif name is None:
            findings.append(f"{place}: the marker is not directly above a test")
        else:
            marked.append((Test(file, name), marker[1].rstrip(".").split(", ")))
    return marked, findings


def read_tests(root: Path) -> tuple[dict[str, list[Test]], list[str]]:
    """The tests of each promise that a marker names, and what is wrong with markers."""
    held: dict[str, list[Test]] = {}
    findings: list[str] = []
    for source in sources(root):
        file = source.relative_to(root).as_posix()
        marked, wrong = read_markers(file, source.read_text())
        findings += wrong
        for test, numbers in marked:
            if len(set(numbers)) < len(numbers):
                findings.append(f"{file}: {test.name} names a promise twice")
            for number in numbers:
                held.setdefault(number, []).append(test)
    return held, findings


def index_of(sections: list[Section], held: dict[str, list[Test]]) -> str:
    """The index as Markdown."""
    lines = [
        "<!-- Generated by `python3 tests/tidy/promises.py` from the markers at the tests. Do not edit. -->",
        "",
        "# Index of promises",
        "",
        "The tests that hold each promise of [PROMISES.md](../../PROMISES.md).",
    ]
    for section in sections:
        if section.promises:
            lines += ["", f"## {section.title}", ""]
        for number in section.promises:
            lines.append(f"- **{number}**")
            lines += [f"  - {test.file}: `{test.name}`" for test in sorted(held.get(number, []))]
    return "\n".join(lines) + "\n"


def check(root: Path) -> tuple[str, list[str]]:
    """The index as it should be, and everything that is wrong with the list and the markers."""
    sections, findings = read_list((root / LIST).read_text())
    held, wrong = read_tests(root)
    findings += wrong
    known = {number for section in sections for number in section.promises}
    findings += [f"{LIST}: no test holds {number}" for section in sections for number in section.promises if number not in held]
    findings += [
        f"{test.file}: {test.name} names {number}, which is not in {LIST}"
        for number in sorted(set(held) - known)
        for test in held[number]
    ]
    return index_of(sections, held), findings


def main(arguments: list[str], root: Path = ROOT) -> int:
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    index, findings = check(root)
    file = root / INDEX
    if arguments:
        if not file.exists() or file.read_text() != index:
            findings.append(f"{INDEX} is stale: run python3 tests/tidy/promises.py and commit it")
    else:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(index)
    print(*findings, sep="\n", end="\n" if findings else "")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
