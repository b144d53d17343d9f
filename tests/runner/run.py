#!/usr/bin/env python3
"""Runs the tests: every part, whatever fails, and one summary at the end.

    tests/runner/run.py test           what `make test` runs
    tests/runner/run.py all            what `make test-all` runs
    tests/runner/run.py rest           what only `make test-all` runs
    tests/runner/run.py test --only browser,docs
    tests/runner/run.py test --times 10 --loaded 5
    tests/runner/run.py --history

The programs under test must be built and the tools installed: the Makefile does both first. Each run has a
directory of its own for temporary files, so that everything it leaves on the machine can be found. With
`--times` the run is repeated until this commit has passed so often; `target/test-runs.jsonl` counts, so that an
interrupted series continues.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import cleanup
import history
import reports
from parts import ROOT, Part, environment, parts

LOGS = ROOT / "target/test-logs"
# How long a part may take to end after a signal, in seconds.
GRACE_S = 20
# The load beside which tests must pass too, for at most two hours.
LOAD_FOLDER = "load"
LOAD = ["stress-ng", "--quiet", "--cpu", "4", "--hdd", "1", "--hdd-bytes", "256M", "--timeout", "7200"]


@dataclass
class Outcome:
    """How a part ended."""

    part: Part
    seconds: float
    status: int
    timed_out: bool
    log: Path
    report: reports.Report
    summaries: list[str]

    @property
    def passed(self) -> bool:
        return self.status == 0 and not self.timed_out


class Run:
    """One run of the parts of a door."""

    def __init__(self, selected: list[Part], own: dict[str, str], together: bool) -> None:
        self._selected = selected
        self._together = together
        self._environment = own
        self._screen = threading.Lock()
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._stopped = threading.Event()
        self.outcomes: list[Outcome] = []

    def say(self, text: str) -> None:
        with self._screen:
            print(text, flush=True)

    def start(self) -> None:
        """Run the first lane and then the others, at the same time if that is wanted."""
        lanes: dict[str, list[Part]] = {}
        for part in self._selected:
            lanes.setdefault(part.lane if self._together or part.lane == "first" else "one", []).append(part)
        first = lanes.pop("first", [])
        threads = [threading.Thread(target=self._lane, args=(first,))]
        self._join(threads)
        threads = [threading.Thread(target=self._lane, args=(lane,)) for lane in lanes.values()]
        self._join(threads)

    @staticmethod
    def _join(threads: list[threading.Thread]) -> None:
        for thread in threads:
            thread.start()
        for thread in threads:
            # A join without a limit would keep Ctrl-C from this thread.
            while thread.is_alive():
                thread.join(0.5)

    def stop(self) -> None:
        """End what runs; its tests clean up after an interrupt."""
        self._stopped.set()
        for process in list(self._running.values()):
            _end(process)

    def _lane(self, lane: list[Part]) -> None:
        for part in lane:
            if self._stopped.is_set():
                return
            outcome = self._part(part)
            if self._stopped.is_set():
                return
            self.outcomes.append(outcome)
            self._tell(outcome)

    def _part(self, part: Part) -> Outcome:
        log = LOGS / f"{part.name}.log"
        report = LOGS / f"{part.name}.xml"
        command = list(part.command)
        surroundings = {
            **environment(),
            **part.environment,
            **self._environment,
            "ISOLET_TEST_LOGS": str(LOGS / "servers"),
            "ISOLET_JUNIT": str(report),
        }
        if part.report == "pytest":
            surroundings["PYTEST_ADDOPTS"] = f"--junitxml={report} -o junit_family=xunit1"
        self.say(f"[{part.name}] started; its output: {log.relative_to(ROOT)}")
        begin = time.monotonic()
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                cwd=ROOT / part.folder,
                env=surroundings,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._running[part.name] = process
            timed_out = False
            try:
                status = process.wait(timeout=part.timeout_s)
            except subprocess.TimeoutExpired:
                timed_out = True
                status = _end(process)
            finally:
                self._running.pop(part.name, None)
        seconds = time.monotonic() - begin
        if part.report == "nextest":
            profile = part.command[part.command.index("--profile") + 1]
            junit = ROOT / f"target/nextest/{profile}/junit.xml"
            if junit.is_file():
                shutil.move(junit, report)
        text = log.read_text(errors="replace")
        return Outcome(part, seconds, status, timed_out, log, reports.read(part, report), reports.summary_lines(text))

    def _tell(self, outcome: Outcome) -> None:
        part = outcome.part
        if outcome.passed:
            word = "passed"
        elif outcome.timed_out:
            word = f"FAILED: it did not end within {part.timeout_s} s"
        else:
            word = f"FAILED with status {outcome.status}"
        lines = [f"[{part.name}] {word} after {outcome.seconds:.0f} s"]
        lines += [f"    {line}" for line in outcome.summaries]
        if not outcome.passed:
            text = outcome.log.read_text(errors="replace")
            lines += ["", *text.splitlines()[-(400 if os.environ.get("CI") else 40):], ""]
        self.say("\n".join(lines))


def _end(process: subprocess.Popen[bytes]) -> int:
    """End a part with everything in its session: an interrupt first, so that its tests clean up."""
    for number, wait_s in ((signal.SIGINT, GRACE_S), (signal.SIGTERM, 5), (signal.SIGKILL, 5)):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            return process.wait(timeout=wait_s)
        except subprocess.TimeoutExpired:
            continue
    return process.wait(timeout=5)


def _summary(run: Run, left: list[str], seconds: float) -> bool:
    """Print what ran and each failed test with the command that runs it alone. True if all passed."""
    counts = sum((outcome.report.counts for outcome in run.outcomes), reports.Counts())
    bad = [outcome for outcome in run.outcomes if not outcome.passed]
    print("\n=== summary")
    for outcome in run.outcomes:
        mark = "passed" if outcome.passed else "FAILED"
        print(f"{mark}  {outcome.part.name:<14}{outcome.seconds:6.0f} s  {' | '.join(outcome.summaries)}")
    for outcome in bad:
        print(f"\n{outcome.part.name} failed; all of its output: {outcome.log.relative_to(ROOT)}")
        for failure in outcome.report.failures:
            print(f"  {failure.name}\n    {failure.command}")
        if not outcome.report.failures:
            print(f"  run it alone: tests/runner/run.py all --only {outcome.part.name}")
    servers = LOGS / "servers"
    if bad and servers.is_dir() and any(servers.iterdir()):
        print(f"\nlogs of the servers of failed tests: {servers.relative_to(ROOT)}")
    if left:
        print("\nthe tests left these behind, and the clean-up removed them:")
        for line in left:
            print(f"  {line}")
    others = sum(1 for outcome in bad if not outcome.report.failures)
    print(f"\n{'FAILED' if bad or left else 'passed'} after {seconds:.0f} s")
    print(f"{counts.passed} passed, {counts.failed + others + len(left)} failed, {counts.skipped} skipped", flush=True)
    return not bad and not left


def _once(selected: list[Part], door: str, loaded: bool, together: bool) -> bool:
    shutil.rmtree(LOGS, ignore_errors=True)
    (LOGS / "servers").mkdir(parents=True)
    begin = time.monotonic()
    place = cleanup.Run()
    run = Run(selected, {"TMPDIR": str(place.directory)}, together)
    load = _load(place.directory) if loaded else None
    left: list[str] = []
    try:
        run.start()
    except KeyboardInterrupt:
        print("\ninterrupted: ending what runs, and removing what it left", flush=True)
        run.stop()
        raise
    finally:
        if load is not None:
            _end(load)
            shutil.rmtree(place.directory / LOAD_FOLDER, ignore_errors=True)
        left = [str(one) for one in place.leftovers()]
        _keep_logs(place.directory)
        left += [f"{one} (it cannot be removed)" for one in place.close()]
    seconds = time.monotonic() - begin
    passed = _summary(run, left, seconds)
    failures = [failure.name for outcome in run.outcomes for failure in outcome.report.failures]
    failures += [outcome.part.name for outcome in run.outcomes if not outcome.passed and not outcome.report.failures]
    history.add(door, loaded, passed, seconds, failures + left)
    return passed


def _keep_logs(directory: Path) -> None:
    """Keep the logs of servers whose tests were killed: the others are gone, or kept by their tests."""
    for log in directory.glob("*/log"):
        if log.is_file():
            shutil.copyfile(log, LOGS / "servers" / f"{log.parent.name}.log")


def _load(directory: Path) -> subprocess.Popen[bytes]:
    place = directory / LOAD_FOLDER
    place.mkdir()
    return subprocess.Popen([*LOAD, "--temp-path", str(place)], start_new_session=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("door", nargs="?", choices=["test", "rest", "all"], default="test")
    parser.add_argument("--only", help="run these parts only, by name, separated by commas")
    parser.add_argument("--times", type=int, help="repeat until this commit has passed so often")
    parser.add_argument("--loaded", type=int, default=0, help="the number of these runs beside a load on processors and disk")
    parser.add_argument("--together", action="store_true", help="run Rust's tests and the others at the same time: sooner, and slower each")
    parser.add_argument("--history", action="store_true", help="print how often each commit passed and failed, and exit")
    options = parser.parse_args()
    # Both end the run and clean up, also where a shell has started this in the background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if options.history:
        print(history.table())
        return 0
    doors = {"test": ["test"], "rest": ["all"], "all": ["test", "all"]}[options.door]
    selected = [part for part in parts() if part.door in doors]
    if options.only:
        names = options.only.split(",")
        unknown = set(names) - {part.name for part in parts()}
        if unknown:
            parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(p.name for p in parts())}")
        selected = [part for part in parts() if part.name in names]
    door = options.door if not options.only else f"{options.door}:{options.only}"
    try:
        if options.times is None:
            return 0 if _once(selected, door, False, options.together) else 1
        while (kind := history.next_run(door, options.times, options.loaded)) is not None:
            print(f"\n=== {door}, {'beside a load' if kind.loaded else 'alone'}: run {kind.number} of {options.times}", flush=True)
            if not _once(selected, door, kind.loaded, options.together):
                return 1
        print(history.table())
        return 0
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
