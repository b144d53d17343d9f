#!/usr/bin/env python3
"""Tests the packages as operators use them: installs, upgrades, removes and purges them.

    run.py                     run every step
    run.py archive sdks        run these steps alone
    run.py --list              list the steps

Needs root, and what `make deb tarball sdk-packages programs` builds. Works below target/package-test. Each
step prints what it has proven; the exit code is 1 when a step fails.
"""

import os
import sys
import time
import traceback
from pathlib import Path

import archive
import clean_root
import machine
import sdks
from report import section

STEPS = {
    "clean-root": (clean_root.run, "the Debian package in a clean root of Debian 12, without systemd"),
    "archive": (archive.run, "the archive in the same root"),
    "sdks": (sdks.run, "the tests of both SDKs against the installed artifacts"),
    "machine": (machine.run, "the Debian package on a machine with systemd and pure cgroup v2"),
}


def main() -> int:
    names = sys.argv[1:] or list(STEPS)
    if names == ["--list"]:
        print("\n".join(f"{name:12}{about}" for name, (_, about) in STEPS.items()))
        return 0
    unknown = [name for name in names if name not in STEPS]
    if unknown:
        sys.exit(f"unknown step {unknown[0]}; run.py --list shows all")
    if os.geteuid() != 0:
        sys.exit("run it as root: it creates roots and sandboxes")
    os.chdir(Path(__file__).resolve().parents[2])
    results = []
    for name in names:
        run, about = STEPS[name]
        section(f"{name}: {about}")
        started = time.monotonic()
        try:
            run()
            result = "passed"
        except Exception:
            traceback.print_exc()
            result = "FAILED"
        results.append((name, result, time.monotonic() - started))
    section("results")
    for name, result, seconds in results:
        print(f"{name:12}{result:8}{seconds:6.0f} s")
    return int(any(result != "passed" for _, result, _ in results))


if __name__ == "__main__":
    sys.exit(main())
