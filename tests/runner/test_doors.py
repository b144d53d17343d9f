"""`make test` shows every promise that one server can show: the rest needs a reason, by section or by number."""

from __future__ import annotations

import json
import subprocess
import sys
import unittest
from pathlib import Path

from parts import ROOT, parts

sys.path.append(str(ROOT / "tests/tidy"))

import promises  # noqa: E402

# Promises that `make test` does not show, by section or by number, and why.
ELSEWHERE = {
    "Fleet": "needs several nodes and etcd",
    "Requests in a fleet": "needs several nodes and etcd",
    "The store of snapshots": "needs an object store",
    "D1": "needs another system's client",
    "D4": "needs another system's client",
    "D7": "needs another system's client",
    "D10": "needs another system's client",
    "F47": "takes ten minutes: `make kills`",
    "L20": "needs swap: `make snapshot-soak`",
    "MT3": "needs Prometheus",
}
# The folders of suites that are not Rust, and the part that runs each.
FOLDERS = {
    "sdk/typescript": "typescript",
    "sdk/python": "python",
    "tests/browser": "browser",
    "tests/openapi": "openapi",
    "tests/docs": "docs",
    "tests/traces": "traces",
    "tests/metrics": "metrics",
    "tests/kubernetes": "kubernetes",
}


def rust_tests(profile: str) -> dict[str, tuple[str, str]]:
    """The Rust tests of a profile: the folder of each one's package, and the name of its function."""
    command = ["cargo", "nextest", "list", "--workspace", "--profile", profile, "--message-format", "json"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=600)
    found = {}
    for binary, suite in json.loads(listed.stdout)["rust-suites"].items():
        folder = Path(suite["cwd"]).relative_to(ROOT).as_posix()
        for name, case in suite["testcases"].items():
            if not case["ignored"] and case["filter-match"]["status"] == "matches":
                found[f"{binary} {name}"] = (folder, name.split("::")[-1])
    return found


class Doors(unittest.TestCase):
    def test_each_rust_test_has_exactly_one_door(self) -> None:
        everyone = set(rust_tests("default"))
        rest = set(rust_tests("all"))
        every = set(rust_tests("soak"))
        self.assertEqual(everyone & rest, set(), "both doors run these")
        self.assertEqual(every - everyone - rest, set(), "no door runs these")

    def test_make_test_shows_every_promise_that_one_server_can_show(self) -> None:
        everyone = {part.name for part in parts() if part.door == "test"}
        rust = set(rust_tests("default").values())

        def is_shown(test: promises.Test) -> bool:
            for folder, part in FOLDERS.items():
                if test.file.startswith(f"{folder}/"):
                    return part in everyone
            folder = "/".join(test.file.split("/")[:2])
            return (folder, test.name) in rust

        sections, findings = promises.read_list((ROOT / promises.LIST).read_text())
        held, more = promises.read_tests(ROOT)
        self.assertEqual(findings + more, [])
        missing = {
            number
            for section in sections
            for number in section.promises
            if section.title not in ELSEWHERE and not any(map(is_shown, held.get(number, [])))
        }
        self.assertEqual(sorted(missing - set(ELSEWHERE)), [], "make test does not show these")
        self.assertEqual(sorted(number for number in ELSEWHERE if number[-1].isdigit() and number not in missing), [])


if __name__ == "__main__":
    unittest.main()
