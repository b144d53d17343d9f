"""Everything that belongs to the directories of ended test runs, and how it is removed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
#: The interface and the table of a server in the network of the host: crates/jail/src/veth.
UPLINK = "isolet0"
TABLE = "ip isolet"
#: Variables by which a shell remembers where it was. They do not say what a process belongs to.
_PLACES = (b"PWD=", b"OLDPWD=", b"_=")

#: How far below the directory of a run servers have their data. Some tests make trees of thousands of levels.
_DATA_DEPTH_MAX = 5


@dataclass(frozen=True)
class Leftover:
    """One thing that has to be removed."""

    kind: str
    name: str
    #: Of a process: its start, in ticks since the boot. With the pid it is unique.
    started: int = 0
    #: For people.
    note: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name} {self.note}".rstrip()


def find(directories: list[Path]) -> list[Leftover]:
    """Everything that belongs to these directories, in the order in which it can be removed."""
    directories = [path for path in directories if os.path.lexists(path)]
    if not directories:
        return []
    data = [path for directory in directories for path in _data_directories(directory)]
    groups = _cgroups(directories, data)
    return [
        *_processes(directories, groups),
        *(Leftover("control group", str(group)) for group in groups),
        *_network(data),
        *(Leftover("mount", mount) for mount in _mounts(directories)),
        *_loop_devices(directories),
        *(Leftover("directory", str(path)) for path in directories),
    ]


def remove(one: Leftover) -> None:
    """Remove it, if that is possible now."""
    by_kind: dict[str, Callable[[Leftover], object]] = {
        "process": _kill,
        "control group": _remove_cgroup,
        "interface": lambda link: _run("ip", "link", "del", link.name),
        "table": lambda table: _run("nft", "delete", "table", *table.name.split()),
        "mount": lambda mount: _run("umount", "--lazy", "--no-canonicalize", mount.name),
        "loop device": lambda device: _run("losetup", "--detach", device.name),
        # Trees of tests are too deep for shutil.
        "directory": lambda directory: _run("rm", "-rf", "--one-file-system", "--", directory.name),
    }
    by_kind[one.kind](one)


def _run(*command: str) -> None:
    """Run a program. Whether it has succeeded is seen by what is left."""
    if shutil.which(command[0]):
        subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=60)


# Data directories and control groups


def _data_directories(directory: Path) -> Iterator[Path]:
    """The data directories of servers. What sandboxes have written below them is not looked at."""
    waiting = [(directory, 0)]
    while waiting:
        path, depth = waiting.pop()
        try:
            below = {entry.name: entry for entry in os.scandir(path)}
        except OSError:
            continue
        # The last one is empty when a test was killed while it removed its directory.
        if "identity" in below or "sandboxes" in below or path.name == "data":
            yield path
        elif depth < _DATA_DEPTH_MAX:
            waiting += [(Path(one.path), depth + 1) for one in below.values() if one.is_dir(follow_symlinks=False)]


def _recorded_group(data: Path) -> str | None:
    """The name in the data directory's record, unless the directory is a copy: then the group is another one's."""
    try:
        fields = dict(line.partition(" ")[::2] for line in (data / "identity").read_text().splitlines())
        about = data.stat()
    except (OSError, UnicodeDecodeError):
        return None
    is_own = (fields.get("device"), fields.get("inode")) == (str(about.st_dev), str(about.st_ino))
    return fields.get("groups") if is_own else None


def _group_of_path(data: Path) -> str:
    """The name of the group of a data directory without a record: crates/jail/src/config.rs."""
    value = 0xCBF2_9CE4_8422_2325
    for byte in os.fsencode(data):
        value = (value ^ byte) * 0x0100_0000_01B3 % (1 << 64)
    return f"isolet-{value >> 32:08x}"


def _cgroups(directories: list[Path], data: list[Path]) -> list[Path]:
    """The groups of data directories, and those with the name of a test's directory, in every hierarchy."""
    names = {_recorded_group(path) for path in data} | {_group_of_path(path) for path in data}
    for directory in directories:
        names.add(directory.name)
        with contextlib.suppress(NotADirectoryError):
            names.update(entry.name for entry in os.scandir(directory))
    names = {name for name in names if name and name.startswith("isolet-")}
    found = []
    for path, folders, _ in os.walk(CGROUPS):
        found += [Path(path, name) for name in folders if name in names]
        folders[:] = [name for name in folders if name not in names]
    return found


def _members(groups: list[Path]) -> set[int]:
    found: set[int] = set()
    for group in groups:
        for path, _, _ in os.walk(group):
            with contextlib.suppress(OSError):
                found.update(int(pid) for pid in Path(path, "cgroup.procs").read_text().split())
    return found


def _remove_cgroup(group: Leftover) -> None:
    for path, _, _ in os.walk(group.name, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(path)


# Processes


@dataclass(frozen=True)
class _Stat:
    state: str
    parent: int
    session: int
    terminal: int
    started: int


def _stat(pid: int) -> _Stat | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(") ")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return _Stat(fields[0], int(fields[1]), int(fields[3]), int(fields[4]), int(fields[19]))


def started_at(pid: int) -> float | None:
    """When a process was started, in seconds since 1970; `None` if it does not run."""
    stat = _stat(pid)
    if stat is None or stat.state in "ZX":
        return None
    boot = re.search(r"^btime (\d+)$", Path("/proc/stat").read_text(), re.MULTILINE)
    assert boot
    return int(boot[1]) + stat.started / os.sysconf("SC_CLK_TCK")


def _processes(directories: list[Path], groups: list[Path]) -> list[Leftover]:
    """The processes that belong to the directories, with everything that they have started.

    A process belongs to them if it is in one of the groups, or if a variable of its environment names them: tests
    set TMPDIR, and servers get ISOLET_DATA_DIR. Helpers of a server have no environment. Those are known by their
    arguments, working directory and open files. At a terminal these do not count: there, a developer looks at files.
    """
    stats = {pid: stat for pid in _pids() if (stat := _stat(pid)) and stat.state not in "ZX"}
    spared = {1, *_ancestors(os.getpid(), stats)}
    names = b"|".join(re.escape(os.fsencode(path)) for path in directories)
    names_one = re.compile(rb"(?:" + names + rb")(?![\w.-])").search
    members = _members(groups)
    own = set()
    for pid in stats.keys() - spared:
        variables = _read(pid, "environ").split(b"\0")
        if pid in members or any(names_one(one) for one in variables if not one.startswith(_PLACES)):
            own.add(pid)
        elif any(map(names_one, _signs(pid))) and not _is_at_terminal(pid, stats):
            own.add(pid)
    children = defaultdict(list)
    for pid, stat in stats.items():
        children[stat.parent].append(pid)
    waiting = list(own)
    while waiting:
        more = set(children[waiting.pop()]) - own - spared
        own |= more
        waiting += more
    return [Leftover("process", str(pid), stats[pid].started, _note(pid)) for pid in sorted(own)]


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _signs(pid: int) -> Iterator[bytes]:
    yield _read(pid, "cmdline")
    with contextlib.suppress(OSError):
        for link in ("cwd", "exe", *(f"fd/{fd}" for fd in os.listdir(f"/proc/{pid}/fd"))):
            with contextlib.suppress(FileNotFoundError):
                yield os.fsencode(os.readlink(f"/proc/{pid}/{link}"))


def _ancestors(pid: int, stats: dict[int, _Stat]) -> Iterator[int]:
    """The process, its parent, and so on."""
    while pid in stats:
        yield pid
        pid = stats[pid].parent


def _is_at_terminal(pid: int, stats: dict[int, _Stat]) -> bool:
    """Whether it was started from a shell at a terminal that is still open.

    Processes without a parent belong to process 1, which is a shell in some containers.
    """
    return any(stats[one].terminal and stats[one].session == one != 1 for one in _ancestors(pid, stats))


def _note(pid: int) -> str:
    return _read(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace").strip()[:100]


def _kill(process: Leftover) -> None:
    pid = int(process.name)
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    with contextlib.suppress(ProcessLookupError):
        stat = _stat(pid)
        # The handle is that of the process that was found, not of a later one with the same pid.
        if stat and stat.started == process.started:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    os.close(handle)


# Network, mounts and loop devices


def _network(data: list[Path]) -> Iterator[Leftover]:
    """What the owner of the veth pairs leaves in the network of the host when it is killed."""
    owners = {f"isolet {path.stat().st_dev:x}:{path.stat().st_ino:x}" for path in data if (path / "network").is_dir()}
    if not owners:
        return
    if any(name == UPLINK for _, name in socket.if_nameindex()):
        shown = subprocess.run(["ip", "-json", "link", "show", UPLINK], capture_output=True, check=False).stdout
        if json.loads(shown or "[{}]")[0].get("ifalias", "").rpartition(":")[0] not in owners:
            return
        yield Leftover("interface", UPLINK)
    # A table without an interface belongs to no living server.
    if shutil.which("nft"):
        command = ["nft", "list", "table", *TABLE.split()]
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            yield Leftover("table", TABLE)


def _is_below(path: str, directories: list[Path]) -> bool:
    return any(Path(path).is_relative_to(directory) for directory in directories)


def _mounts(directories: list[Path]) -> list[str]:
    """Mount points, the last mounted first."""
    points = (line.split(" ")[4] for line in Path("/proc/self/mountinfo").read_text().splitlines())
    plain = (re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), point) for point in points)
    return [point for point in plain if _is_below(point, directories)][::-1]


def _loop_devices(directories: list[Path]) -> Iterator[Leftover]:
    for device in Path("/sys/block").glob("loop*"):
        with contextlib.suppress(FileNotFoundError):
            file = (device / "loop/backing_file").read_text().strip().removesuffix(" (deleted)")
            if _is_below(file, directories):
                yield Leftover("loop device", f"/dev/{device.name}", note=file)
