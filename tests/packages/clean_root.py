"""Installs and purges the Debian package in a minimal root: dependencies, files, and what is left."""

import shutil

from artifacts import VERSION, WORK, deb
from listing import accounts, listing
from report import expect
from roots import MINIMAL, inside, root, unpack

#: Files that the package must install.
FILES = (
    "usr/bin/isolet",
    "usr/lib/isolet/isolet-launcher",
    "usr/lib/isolet/isolet-agent",
    "usr/lib/isolet/isolet-egress-proxy",
    "usr/lib/systemd/system/isolet.service",
    "etc/isolet/isolet.toml",
    "usr/share/man/man1/isolet.1.gz",
    "usr/share/bash-completion/completions/isolet",
    "usr/share/zsh/vendor-completions/_isolet",
    "usr/share/fish/vendor_completions.d/isolet.fish",
)
COMPLETE = """
. /usr/share/bash-completion/bash_completion; . /usr/share/bash-completion/completions/isolet
COMP_WORDS=(isolet key) COMP_CWORD=1 COMP_LINE='isolet key' COMP_POINT=10; _clap_complete_isolet isolet key isolet
printf '%s\\n' "${COMPREPLY[@]}"
"""


def run() -> None:
    """Install, look, remove, install again, purge."""
    directory = WORK / "clean-root"
    unpack(root("minimal", MINIMAL), directory)
    inside(directory, "apt-get update -q")
    shutil.copy(deb(), directory / "tmp/isolet.deb")
    # The dependencies stay when the package is purged, so they are installed first.
    planned = inside(directory, "apt-get install --simulate -qy --no-install-recommends /tmp/isolet.deb")
    needed = [line.split()[1] for line in planned.splitlines() if line.startswith("Inst ") and " isolet " not in line]
    inside(directory, f"apt-get install -qy --no-install-recommends {' '.join(needed)}")
    print(f"    dependencies that were missing: {' '.join(needed)}")
    before = listing(directory)
    before_accounts = accounts(directory)

    inside(directory, "apt-get install -qy --no-install-recommends /tmp/isolet.deb")
    missing = [name for name in FILES if not (directory / name).exists()]
    expect(not missing, f"apt installs the package with its dependencies; missing files: {missing}")
    version = inside(directory, "isolet --version").strip()
    expect(version == f"isolet {VERSION}", f"the program starts: {version}")
    expect("isolet-launcher" not in inside(directory, "isolet serve --print-config"), "the configuration is valid")
    page = inside(directory, "man -P cat isolet-exec")
    expect("exit with its exit code" in page, "man isolet-exec shows a page")
    (directory / "tmp/complete").write_text(COMPLETE)
    expect("keys" in inside(directory, "bash /tmp/complete").split(), "bash completes `isolet key` to keys")
    owned = inside(directory, "dpkg -L isolet | xargs -d '\\n' stat -c '%U:%G %n' | grep -v ^root:root || true")
    expect(not owned, "root owns every file")

    edited = directory / "etc/isolet/isolet.toml"
    edited.write_text(edited.read_text() + "# edited\n")
    inside(directory, "apt-get remove -qy isolet")
    expect(edited.read_text().endswith("# edited\n"), "a removal keeps the edited configuration")
    inside(directory, "apt-get install -qy --no-install-recommends -o Dpkg::Options::=--force-confold /tmp/isolet.deb")
    expect(edited.read_text().endswith("# edited\n"), "and a later installation uses it")

    (directory / "var/lib/isolet").mkdir()
    (directory / "var/lib/isolet/marker").touch()
    inside(directory, "apt-get purge -qy isolet")
    expect((directory / "var/lib/isolet/marker").exists(), "a purge keeps data by default")
    inside(directory, "apt-get install -qy --no-install-recommends /tmp/isolet.deb")
    inside(
        directory, "echo 'isolet isolet/delete_data boolean true' | debconf-set-selections; apt-get purge -qy isolet"
    )
    left = sorted(listing(directory) - before)
    expect(not left, f"a purge that may delete data leaves nothing: {left[:20]}")
    expect(accounts(directory) == before_accounts, "users and groups are those of before")
    expect("isolet" not in inside(directory, "debconf-show isolet"), "debconf has no answer of the package left")
