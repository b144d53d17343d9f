"""Runs on the emulated machine: the life of the package, from installing to purging."""

import sys
import traceback

import busy
import first_use
import removal
import upgrade
import visible_limits
from system import say, snapshot


def main() -> None:
    """Run the steps in order; each uses what the one before left."""
    before = snapshot()
    first_use.kernel_and_systemd()
    first_use.install()
    first_use.first_shell()
    first_use.limits_disk_and_network()
    visible_limits.visible_limits()
    sandboxes = busy.start()
    upgrade.upgrade(sandboxes)
    upgrade.failed_server(sandboxes)
    busy.finish(sandboxes)
    removal.remove_and_reinstall(sandboxes, before)
    removal.purge(before)


if __name__ == "__main__":
    try:
        main()
        say("PACKAGE-TEST PASSED")
    except BaseException:
        traceback.print_exc(file=sys.stdout)
        say("PACKAGE-TEST FAILED")
