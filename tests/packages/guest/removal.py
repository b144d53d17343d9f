"""Removing and purging: what stays, what ends, what is left."""

from pathlib import Path

from first_use import install_package
from system import Snapshot, expect, isolet, run, sandbox, snapshot, wait_until


def nothing_runs(before: Snapshot, what: str) -> None:
    """No process, mount, control group, nft table, interface, loop device or account is left."""
    wait_until("the processes have ended", lambda: not snapshot().processes)
    wait_until("no loop device is attached", lambda: snapshot().loops == before.loops)
    after = snapshot()
    for field in ("processes", "mounts", "cgroups", "nft_tables", "links", "accounts"):
        old = getattr(before, field)
        new = getattr(after, field)
        assert new == old, f"{what}: {field} differ: {new} instead of {old}"
    expect(True, f"{what} leaves no process, mount, control group, nft table, interface, loop device or account")


def remove_and_reinstall(sandboxes, before: Snapshot) -> None:
    """Purge without deleting data while sandboxes run, then install again and wake one."""
    isolet("start", "busy00", "--id", "endless", "--", "while :; do sleep 1; done")
    said = run("apt-get", "purge", "-qy", "isolet")
    expect("ended" in said, next(line for line in said.splitlines() if "ended" in line).strip())
    nothing_runs(before, "a purge that keeps data")
    expect(Path("/var/lib/isolet/isolet.db").exists(), "a purge keeps data by default")
    expect(not Path("/etc/isolet").exists(), "and deletes the configuration")

    install_package("/test/isolet.deb")
    states = {one.name: sandbox(one.name)["state"] for one in sandboxes}
    expect(set(states.values()) == {"sleeping"}, "after an installation every sandbox of before is asleep")
    one = sandboxes[7]
    lines = isolet("exec", one.name, "--session", "work", "--", "cat lines")
    expect(
        lines == Path(f"/test/{one.name}.lines").read_bytes(),
        "one wakes in its directory, with every byte of its files",
    )


def purge(before: Snapshot) -> None:
    """Purge with the answer that deletes data."""
    Path("/test/answers").write_text("isolet isolet/delete_data boolean true\n")
    run("debconf-set-selections", "/test/answers")
    run("apt-get", "purge", "-qy", "isolet")
    nothing_runs(before, "a purge")
    left = [
        path for path in ("/var/lib/isolet", "/etc/isolet", "/usr/lib/isolet", "/usr/bin/isolet") if Path(path).exists()
    ]
    expect(not left, f"a purge that may delete data leaves none: {left}")
    expect("isolet" not in run("systemctl", "list-unit-files", "--no-pager"), "systemd knows no unit of the package")
