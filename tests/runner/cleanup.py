"""Finds and removes what ended test runs left: processes, control groups, network interfaces, packet filter tables,
mounts, loop devices and directories.

A run keeps all its temporary files below one directory, the TMPDIR of everything that it starts, so that everything
else can be found from there. It holds a lock on the file `lock` in that directory. The kernel releases the lock when
the run is killed: a directory whose lock is free belongs to a run that has ended.

A test that a developer starts alone belongs to no run. The names of its directories carry its pid:
`isolet-test-PID-XXXXXX`.

    python3 tests/runner/cleanup.py            remove everything that ended runs left
    python3 tests/runner/cleanup.py --check    only list it

The exit status is 1 if something is left.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import leftovers
from leftovers import Leftover

#: The start of the name of a run's directory.
RUN = "isolet-run-"
LOCK = "lock"
#: A directory without a lock file belongs to a run that is being started, until it has this age in seconds.
START_S_MAX = 60
#: Directories of tests that are started alone, and the pid of the test.
ALONE = re.compile(
    r"isolet-(?:agent|archive|browser|compat|docs|fleet|internet|layer|mixed-[a-z-]+|noted|orphan|outside|prometheus"
    r"|python|renamed|sdk|site|systemd|test|tree)-(\d+)(?:-.*)?"
)
#: What pytest and Playwright keep for their next run.
KEPT_BY_TOOLS = ("pytest-of-", "playwright-transform-cache-")
#: How long the removal may take, in seconds. Killed processes may still write to a disk.
CLEAN_S_MAX = 60


class Run:
    """A run that lives as long as this process, or until it is closed.

    A fork of this process holds the lock, too; programs that it starts do not.
    """

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix=RUN)).resolve()
        # Agents and sandboxes have other users, which must reach their own directories below.
        self.directory.chmod(0o711)
        self._lock = os.open(self.directory / "lock.new", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        # From now on the run is seen to live.
        (self.directory / "lock.new").rename(self.directory / LOCK)

    def environment(self) -> dict[str, str]:
        """The environment of everything that the run starts."""
        return {**os.environ, "TMPDIR": str(self.directory)}

    def leftovers(self) -> list[Leftover]:
        """Everything that has not been removed yet. After the tests, each is a bug of a test."""
        found = leftovers.find([self.directory])
        files = [path for path in sorted(self.directory.iterdir()) if not path.name.startswith((LOCK, *KEPT_BY_TOOLS))]
        return [one for one in found if one.kind != "directory"] + [Leftover("file", str(path)) for path in files]

    def close(self) -> list[Leftover]:
        """Remove everything. Returns what could not be removed."""
        _, left = clean([self.directory])
        os.close(self._lock)
        return left


def ended_runs(place: Path) -> Iterator[tuple[Path, int | None]]:
    """The directories of runs that have ended, with their locks, and those of tests that were started alone.

    While a lock is held, another clean-up takes the run for a living one.
    """
    for directory in sorted(place.iterdir()):
        alone = ALONE.fullmatch(directory.name)
        if alone and not _made_by_living(int(alone[1]), directory):
            yield directory, None
        elif directory.name.startswith(RUN):
            with contextlib.suppress(_LivesError):
                yield directory, _lock(directory)


class _LivesError(Exception):
    """The run has not ended."""


def _lock(directory: Path) -> int | None:
    try:
        lock = os.open(directory / LOCK, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        if time.time() - directory.stat().st_mtime < START_S_MAX:
            raise _LivesError from None
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise _LivesError from None
    return lock


def _made_by_living(pid: int, directory: Path) -> bool:
    """Whether this process runs and is not a later one with the same pid."""
    started = leftovers.started_at(pid)
    try:
        return started is not None and started < directory.stat().st_mtime + 1
    except FileNotFoundError:
        return True


def clean(directories: list[Path]) -> tuple[list[Leftover], list[Leftover]]:
    """Remove everything of these directories, and then themselves. Returns what was removed and what is left."""
    removed: dict[Leftover, None] = {}
    until = time.monotonic() + CLEAN_S_MAX
    while True:
        found = leftovers.find(directories)
        removed.update(dict.fromkeys(found))
        if not found or time.monotonic() > until:
            return [one for one in removed if one not in found], found
        # One kind after the other: what a running process uses cannot be removed, and the data directory names the
        # control groups.
        first = found[0].kind
        for one in found:
            if one.kind == first:
                leftovers.remove(one)
        time.sleep(0.02)


def clean_ended(only_list: bool = False) -> tuple[list[Leftover], list[Leftover]]:
    """Remove, or only list, everything of all runs that have ended. Returns what was removed and what is left."""
    ended = list(ended_runs(Path(tempfile.gettempdir()).resolve()))
    directories = [directory for directory, _ in ended]
    try:
        return ([], leftovers.find(directories)) if only_list else clean(directories)
    finally:
        for _, lock in ended:
            if lock is not None:
                os.close(lock)


def main() -> int:
    parser = argparse.ArgumentParser(description="Remove what ended test runs left.")
    parser.add_argument("--check", action="store_true", help="only list it")
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("root is needed: the tests create sandboxes as root")
    removed, left = clean_ended(arguments.check)
    for one in removed:
        print(f"removed {one}")
    for one in left:
        print(f"left: {one}")
    print(f"{len(removed)} removed, {len(left)} left")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
