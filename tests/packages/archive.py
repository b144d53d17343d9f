"""Installs and removes the archive in a minimal root."""

import shutil

from artifacts import VERSION, WORK, archive
from listing import listing
from report import expect
from roots import MINIMAL, inside, root, unpack


def run() -> None:
    """Install below /usr/local, install again, uninstall, purge."""
    directory = WORK / "archive-root"
    unpack(root("minimal", MINIMAL), directory)
    before = listing(directory)
    shutil.copy(archive(), directory / "tmp/isolet.tar.gz")
    inside(directory, "cd /tmp && tar xf isolet.tar.gz && mv isolet-*-linux isolet")

    said = inside(directory, "/tmp/isolet/install.sh")
    print("".join(f"    {line}\n" for line in said.splitlines()), end="")
    version = inside(directory, "/usr/local/bin/isolet --version").strip()
    expect(version == f"isolet {VERSION}", f"the program starts: {version}")
    unit = (directory / "etc/systemd/system/isolet.service").read_text()
    expect("ExecStart=/usr/local/bin/isolet serve" in unit, "the unit starts the installed program")
    expect("nft is missing" in said, "install.sh says that sandboxes have no network without nftables")
    expect("exit with its exit code" in inside(directory, "man -P cat isolet-exec"), "man isolet-exec shows a page")

    edited = directory / "etc/isolet/isolet.toml"
    edited.write_text(edited.read_text() + "# edited\n")
    inside(directory, "/tmp/isolet/install.sh")
    expect(edited.read_text().endswith("# edited\n"), "a second install.sh keeps the edited configuration")

    inside(directory, "/tmp/isolet/uninstall.sh")
    expect(edited.exists(), "uninstall.sh keeps the configuration")
    inside(directory, "/tmp/isolet/install.sh; mkdir -p /var/lib/isolet; /tmp/isolet/uninstall.sh --purge")
    left = sorted(path for path in listing(directory) - before if not empty(directory / path))
    expect(not left, f"uninstall.sh --purge leaves no file: {left}")


def empty(path) -> bool:
    """Whether this is a directory without files below it."""
    return path.is_dir() and not any(child.is_file() or child.is_symlink() for child in path.rglob("*"))
