"""The first minutes: install, a first shell, limits, a disk, a network."""

import json
import subprocess
import time
from pathlib import Path

import system
from system import answers, expect, isolet, run, say, wait_until


def kernel_and_systemd() -> None:
    """The machine is what the test is about."""
    kind = run("stat", "-f", "-c", "%T", "/sys/fs/cgroup").strip()
    expect(kind == "cgroup2fs", f"pure cgroup v2 ({kind}), kernel {run('uname', '-r').strip()}")
    state = run("systemctl", "is-system-running", check=False).strip()
    say(f"systemd is {state}: {run('systemctl', '--version').splitlines()[0]}")


def install_said(said: str) -> None:
    """Print what apt did with the package."""
    for line in said.splitlines():
        if line.startswith(("Setting up isolet", "Unpacking isolet")):
            say(f"  {line}")


def install_package(package: str) -> float:
    """Install, wait for the server, and return the seconds that both took."""
    started = time.monotonic()
    install_said(system.install(package))
    wait_until("the server answers", answers)
    return time.monotonic() - started


def install() -> None:
    """Install the package to upgrade from, and look at what the unit did."""
    seconds = install_package("/test/earlier.deb")
    expect(True, f"apt installs the package; the server answers {seconds:.0f} s after apt was started")
    expect(run("systemctl", "is-enabled", "isolet").strip() == "enabled", "the unit is enabled")
    mode = run("stat", "-c", "%a", "/var/lib/isolet").strip()
    expect(mode == "700", "only root can enter the data directory")
    score = run("systemd-analyze", "security", "--no-pager", "isolet").splitlines()[-1]
    say(f"  {score.strip()}")


def first_shell() -> None:
    """A command in a session that keeps its state."""
    out = isolet("exec", "demo", "--session", "dev", "--", "cd /tmp; X=42; echo hello from $(id -un)")
    expect(out == b"hello from root\n", f"a first command answers: {out.decode().strip()}")
    out = isolet("exec", "demo", "--session", "dev", "--", "echo $PWD $X")
    expect(out == b"/tmp 42\n", "the session keeps its directory and variables")


def network_created() -> bool:
    """Create a sandbox with a network. The first one loads kernel modules, which may take too long here."""
    create = ["isolet", "create", "net", "--allow", "192.0.2.1:443"]
    return subprocess.run(create, capture_output=True).returncode == 0


def limits_disk_and_network() -> None:
    """Limits by cgroup v2, a disk of its own behind a loop device, and a veth pair."""
    isolet("create", "limited", "--memory", "64", "--cpu", "500")
    root = next(Path("/sys/fs/cgroup").glob("isolet-*"))
    limits = [path.read_text().strip() for path in root.glob("*/tenant/memory.max")]
    expect(str(64 << 20) in limits, f"control groups in {root} limit memory to 64 MiB")
    quotas = [path.read_text().strip() for path in root.glob("*/tenant/cpu.max")]
    expect("50000 100000" in quotas, "and processor time to half a core")

    run("python3", "/test/guest/call.py", "POST", "/v1/sandboxes", json.dumps({"id": "disk", "disk_mib": 64}))
    size = isolet("exec", "disk", "--", "df -m --output=size /workspace | tail -1")
    expect(40 <= int(size) <= 64, f"a sandbox with disk_mib has a disk of {int(size)} MiB behind a loop device")

    wait_until("the first network is ready", network_created)
    expect("isolet0" in run("ip", "-o", "link"), "the gateway's interface exists")
    expect("table ip isolet" in run("nft", "list", "tables"), "and its nft table")
    out = isolet("exec", "net", "--", "ls /sys/class/net; cat /proc/net/dev | grep -c eth0")
    expect(out.split()[-1] == b"1", "the sandbox has an interface")
    for name in ("limited", "disk"):
        isolet("rm", name)
