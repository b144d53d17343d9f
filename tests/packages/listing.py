"""What a system contains, to compare before and after a package."""

import os
from pathlib import Path

#: What installing any package changes: logs, caches, and the records of dpkg, apt and debconf.
CHANGING = (
    "dev",
    "proc",
    "sys",
    "run",
    "tmp",
    "var/cache",
    "var/lib/apt",
    "var/lib/dpkg",
    "var/log",
    "etc/resolv.conf",
    "etc/ld.so.cache",
    "root",
    "usr/share/info/dir",
)


def listing(root: Path) -> set[str]:
    """Every path of a root except those that any installation changes."""
    found = set()
    for directory, names, files in os.walk(root):
        here = Path(directory).relative_to(root)
        names[:] = [name for name in names if str(here / name) not in CHANGING]
        found.update(str(here / name) for name in [*names, *files] if str(here / name) not in CHANGING)
    return found


def accounts(root: Path) -> str:
    """The users and groups of a root."""
    return (root / "etc/passwd").read_text() + (root / "etc/group").read_text()
