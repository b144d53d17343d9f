"""Reads which tests of a part failed, from the reports that its runner wrote, and how to run each one alone."""

from __future__ import annotations

import re
import shlex
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

from parts import PYTHON, ROOT, Part

# What colours a terminal, and is no text of a test.
COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# Lines in which the runners say how many tests ran.
SUMMARIES = (
    re.compile(r"^\s*Summary \[.*\] .*"),
    re.compile(r"^=* ?\d+ (passed|failed|error).* in [\d.]+s.*$"),
    re.compile(r"^\s*Tests\s+.*\d+ passed.*$"),
    re.compile(r"^browser: \d+ passed.*$"),
    re.compile(r"^Ran \d+ tests? in .*$"),
    re.compile(r"^\d+ screens .*$"),
)


@dataclass(frozen=True)
class Failure:
    """A test that failed, and the command that runs it alone."""

    name: str
    command: str


@dataclass(frozen=True)
class Counts:
    """How many tests of a part ran."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped)


@dataclass(frozen=True)
class Report:
    """The result of a part. Without a report of the runner there are no counts."""

    counts: Counts
    failures: list[Failure]


def summary_lines(text: str) -> list[str]:
    """The lines of an output in which a runner says how many tests ran."""
    lines = [COLOURS.sub("", line).rstrip() for line in text.splitlines()]
    return [line.strip() for line in lines if any(pattern.match(line) for pattern in SUMMARIES)]


def read(part: Part, file: Path) -> Report:
    """Read the JUnit report of a part. A missing or damaged file is a report of no tests."""
    try:
        root = ElementTree.parse(file).getroot()
    except (OSError, ElementTree.ParseError):
        return Report(Counts(), [])
    passed = failed = skipped = 0
    failures: list[Failure] = []
    for suite in root.iter("testsuite"):
        for case in suite.findall("testcase"):
            if case.find("failure") is not None or case.find("error") is not None:
                failed += 1
                failures.append(_failure(part, suite.get("name", ""), case))
            elif case.find("skipped") is not None:
                skipped += 1
            else:
                passed += 1
    return Report(Counts(passed, failed, skipped), failures)


def _failure(part: Part, suite: str, case: ElementTree.Element) -> Failure:
    name = case.get("name", "")
    if part.report == "nextest":
        wanted = f"binary_id({suite}) & test(={name})"
        command = f"cargo nextest run --workspace --ignore-default-filter -E {shlex.quote(wanted)}"
        return Failure(f"{suite} {name}", command)
    if part.report == "pytest":
        node = _pytest_node(part, case.get("classname", ""), name)
        return Failure(node, f"{_go(part)}{_short(PYTHON)}/pytest {shlex.quote(node)}")
    # Vitest and Playwright: the suite is the file.
    title = name.split(" > ")[-1].split(" › ")[-1]
    is_browser = part.folder == "tests/browser"
    program = "playwright test" if is_browser else "vitest run"
    flag = "-g" if is_browser else "-t"
    command = f"{_go(part)}npx {program} {shlex.quote(suite)} {flag} {shlex.quote(re.escape(title))}"
    return Failure(f"{suite} {name}", command)


def _pytest_node(part: Part, classname: str, name: str) -> str:
    """The id by which pytest finds a test: its file, the classes in it, and the name."""
    base = ROOT / part.folder
    names = classname.split(".")
    for length in range(len(names), 0, -1):
        file = Path(*names[:length]).with_suffix(".py")
        if (base / file).is_file():
            return "::".join([str(file), *names[length:], name])
    return name


def _go(part: Part) -> str:
    return "" if part.folder == "." else f"cd {part.folder} && "


def _short(path: Path) -> str:
    return f"$PWD/{path.relative_to(ROOT)}" if path.is_relative_to(ROOT) else str(path)
