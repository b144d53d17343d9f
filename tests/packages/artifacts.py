"""The artifacts under test, and a Debian package to upgrade from."""

import os
import re
from pathlib import Path

from report import run

#: Everything that the tests create.
WORK = Path("target/package-test").absolute()
VERSION = re.search(r'^version = "(.*)"', Path("Cargo.toml").read_text(), re.MULTILINE)[1]


def one(pattern: str) -> Path:
    """The newest file in dist/ that matches."""
    found = sorted(Path("dist").glob(pattern), key=lambda path: path.stat().st_mtime)
    if not found:
        raise FileNotFoundError(f"dist/{pattern} is missing: make deb tarball sdk-packages")
    return found[-1].absolute()


def deb() -> Path:
    """The Debian package."""
    return one(f"isolet_{VERSION}-*.deb")


def archive() -> Path:
    """The archive for machines without dpkg."""
    return one(f"isolet-{VERSION}-*-linux.tar.gz")


def earlier_deb() -> Path:
    """The package to upgrade from: ISOLET_EARLIER_DEB, of the same format, or the same files with a lower version."""
    if given := os.environ.get("ISOLET_EARLIER_DEB"):
        return Path(given).absolute()
    tree = WORK / "earlier"
    made = WORK / "isolet-earlier.deb"
    run(["rm", "-rf", str(tree)])
    run(["dpkg-deb", "--raw-extract", str(deb()), str(tree)])
    control = tree / "DEBIAN/control"
    lower = re.sub(r"^Version: .*$", f"Version: {VERSION}~earlier", control.read_text(), flags=re.MULTILINE)
    control.write_text(lower)
    run(["dpkg-deb", "--build", "--root-owner-group", "-Zgzip", str(tree), str(made)])
    run(["rm", "-rf", str(tree)])
    return made
