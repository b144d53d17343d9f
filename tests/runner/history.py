"""Counts the runs of the tests by commit, in a file that an interrupted series continues."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from parts import ROOT

FILE = ROOT / "target/test-runs.jsonl"


@dataclass(frozen=True)
class Next:
    """The next run of a series."""

    number: int
    loaded: bool


def commit() -> str:
    """The commit under test, with `+` if the tree differs from it."""
    head = _git("rev-parse", "--short=10", "HEAD")
    return head + ("+" if _git("status", "--porcelain", "--untracked-files=no") else "")


def add(door: str, loaded: bool, passed: bool, seconds: float, failures: list[str], file: Path = FILE) -> None:
    """Append one run."""
    line = {
        "commit": commit(),
        "door": door,
        "loaded": loaded,
        "passed": passed,
        "seconds": round(seconds),
        "at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "failures": failures,
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as to:
        to.write(json.dumps(line) + "\n")


def runs(file: Path = FILE) -> list[dict[str, Any]]:
    """All runs, the first one first. A line that a killed run cut is left out."""
    found = []
    for line in file.read_text().splitlines() if file.is_file() else []:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def next_run(door: str, times: int, loaded: int, file: Path = FILE) -> Next | None:
    """The next run of a series on this commit, those beside a load last; `None`: all have passed."""
    mine = [run for run in runs(file) if run["commit"] == commit() and run["door"] == door and run["passed"]]
    with_load = sum(1 for run in mine if run["loaded"])
    alone = len(mine) - with_load
    if alone < times - loaded:
        return Next(len(mine) + 1, False)
    if with_load < loaded:
        return Next(len(mine) + 1, True)
    return None


def table(file: Path = FILE) -> str:
    """One line for each commit, door and load: how many runs passed and failed, and how long they took."""
    groups: dict[tuple[str, str, bool], list[dict[str, Any]]] = {}
    for run in runs(file):
        groups.setdefault((run["commit"], run["door"], run["loaded"]), []).append(run)
    lines = ["commit       what        load   passed  failed  seconds (least, median, most)"]
    for (at, door, loaded), group in groups.items():
        times = sorted(run["seconds"] for run in group)
        passed = sum(1 for run in group if run["passed"])
        load = "yes" if loaded else "no"
        spread = f"{times[0]}, {times[len(times) // 2]}, {times[-1]}"
        lines.append(f"{at:<12} {door:<11} {load:<6} {passed:<7} {len(group) - passed:<7} {spread}")
        lines += [f"    failed: {', '.join(run['failures']) or 'see its log'}" for run in group if not run["passed"]]
    return "\n".join(lines)


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
