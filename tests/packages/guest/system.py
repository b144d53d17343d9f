"""Commands and facts of the machine."""

import json
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

#: Time limit of a command, in seconds. The machine is emulated.
COMMAND_S_MAX = 1800


def say(text: str) -> None:
    """Print a line on the console."""
    print(text, flush=True)


def run(*command: str, check: bool = True) -> str:
    """Run a command and return its output."""
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=COMMAND_S_MAX
    )
    text = done.stdout.decode(errors="replace")
    if check and done.returncode != 0:
        say(text)
        say(run("journalctl", "--no-pager", "-u", "isolet", "-n", "40", check=False))
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}")
    return text


def isolet(*args: str) -> bytes:
    """Run `isolet` and return its standard output."""
    done = subprocess.run(["isolet", *args], stdin=subprocess.DEVNULL, capture_output=True, timeout=COMMAND_S_MAX)
    if done.returncode != 0:
        say(run("journalctl", "--no-pager", "-u", "isolet", "-n", "40", check=False))
        raise RuntimeError(f"isolet {' '.join(args)}: {done.returncode}: {done.stderr.decode(errors='replace')}")
    return done.stdout


def expect(fact: bool, text: str) -> None:
    """Require a fact, and print it as proven."""
    if not fact:
        raise AssertionError(f"not so: {text}")
    say(f"proven: {text}")


def wait_until(text: str, condition, limit_s: float = 900) -> float:
    """Wait for a condition, and return how long it took, in seconds."""
    started = time.monotonic()
    while not condition():
        if time.monotonic() - started > limit_s:
            say(run("journalctl", "--no-pager", "-u", "isolet", "-n", "60", check=False))
            raise TimeoutError(f"not so after {limit_s} s: {text}")
        time.sleep(0.5)
    return time.monotonic() - started


def answers() -> bool:
    """Whether the server answers a request with its key."""
    return subprocess.run(["isolet", "ls"], capture_output=True).returncode == 0


def install(package: str) -> str:
    """Install a package without a network."""
    options = ("--no-install-recommends", "-o", "Dpkg::Options::=--force-confold")
    return run("apt-get", "install", "-qy", *options, package)


def main_pid() -> str:
    """The process id of the server."""
    return run("systemctl", "show", "--property=MainPID", "--value", "isolet").strip()


def agents() -> dict[str, str]:
    """The recorded agent of each sandbox: its process id and start time."""
    return {path.parent.name: path.read_text() for path in Path("/var/lib/isolet/sandboxes").glob("*/agent")}


def sandbox(name: str) -> dict:
    """A sandbox as the server describes it."""
    return next(one for one in json.loads(isolet("ls", "--json")) if one["id"] == name)


@dataclass
class Snapshot:
    """What a purge must not leave. Each field is comparable."""

    mounts: set[str]
    cgroups: set[str]
    nft_tables: str
    links: set[str]
    accounts: str
    loops: str
    processes: set[str]


def snapshot() -> Snapshot:
    """Read the state of the machine."""
    mounts = {line.split(" ")[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()}
    top = Path("/sys/fs/cgroup")
    named = {path.read_text().strip() for path in Path("/proc").glob("[0-9]*/comm") if path.exists()}
    return Snapshot(
        mounts={mount for mount in mounts if "isolet" in mount},
        cgroups={str(path) for path in top.rglob("*isolet*") if path.is_dir()},
        nft_tables=run("nft", "list", "tables"),
        links=set(path.name for path in Path("/sys/class/net").iterdir()),
        accounts=Path("/etc/passwd").read_text() + Path("/etc/group").read_text(),
        loops=run("losetup", "--list", "--noheadings"),
        processes={name for name in named if name.startswith("isolet")},
    )
