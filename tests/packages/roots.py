"""Roots of Debian 12 by mmdebstrap, cached below target/package-test, and commands inside them."""

from pathlib import Path

from artifacts import WORK
from report import run

#: A minimal root, without any dependency of the package.
MINIMAL = ("man-db", "bash-completion")
#: A machine that boots, with the dependencies of the package, because it has no network.
BOOTABLE = (
    "linux-image-cloud-amd64",
    "initramfs-tools",
    "systemd-sysv",
    "udev",
    "dbus",
    "kmod",
    "procps",
    "iproute2",
    "python3",
    "man-db",
    "bash",
    "ca-certificates",
    "debconf",
    "e2fsprogs",
    "nftables",
)


def root(name: str, packages: tuple[str, ...]) -> Path:
    """A tar archive of a root with these packages. It is made once."""
    archive = WORK / f"{name}.tar"
    if not archive.exists():
        WORK.mkdir(parents=True, exist_ok=True)
        print(f"  mmdebstrap {name}: Debian 12 with {', '.join(packages)}", flush=True)
        partial = archive.with_suffix(".partial.tar")
        run(["mmdebstrap", "--quiet", "--variant=apt", f"--include={','.join(packages)}", "bookworm", str(partial)])
        partial.rename(archive)
    return archive


def unpack(archive: Path, directory: Path) -> None:
    """Unpack a root into an empty directory."""
    run(["rm", "-rf", "--one-file-system", str(directory)])
    directory.mkdir(parents=True)
    run(["tar", "-xpf", str(archive), "--numeric-owner", "-C", str(directory)])


def inside(directory: Path, script: str) -> str:
    """Run a shell script in a root, with namespaces of its own and the machine's resolver."""
    (directory / "etc/resolv.conf").write_text(Path("/etc/resolv.conf").read_text())
    mounts = "mount -t proc proc proc; mount -t sysfs sys sys; mount --rbind /dev dev"
    command = f"set -eu; cd '{directory}'; {mounts}; exec chroot . /bin/sh -eu -c \"$1\""
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    shell = ["bash", "-c", command, "bash", script]
    return run(["unshare", "--mount", "--pid", "--fork", "--kill-child", *shell], env=environment)
