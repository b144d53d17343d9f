"""The results of the runners as the summary shows them, and the count of runs."""

from __future__ import annotations

import tempfile
import unittest
from pathlib import Path
from unittest import mock

import history
import reports
from parts import Part

NEXTEST = """<testsuites><testsuite name="isolet-promises::promises">
<testcase name="attach::t1_it_holds"/>
<testcase name="attach::t2_it_does_not"><failure message="no"/></testcase>
<testcase name="attach::t3_not_here"><skipped/></testcase>
</testsuite></testsuites>"""
PYTEST = """<testsuites><testsuite name="pytest">
<testcase classname="tests.docs.test_links.TestLinks" name="test_one[a b]"><error message="no"/></testcase>
</testsuite></testsuites>"""
VITEST = """<testsuites><testsuite name="test/code.test.ts">
<testcase classname="test/code.test.ts" name="contexts &gt; run (code)"><failure/></testcase>
</testsuite></testsuites>"""


def read(text: str, part: Part) -> reports.Report:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.xml"
        file.write_text(text)
        return reports.read(part, file)


def part(report: str, name: str = "it", folder: str = ".") -> Part:
    return Part(name, "test", "rust", [], 1, report, folder)


class Reports(unittest.TestCase):
    def test_each_failed_test_has_the_command_that_runs_it_alone(self) -> None:
        found = read(NEXTEST, part("nextest"))
        self.assertEqual(found.counts, reports.Counts(1, 1, 1))
        wanted = "-E 'binary_id(isolet-promises::promises) & test(=attach::t2_it_does_not)'"
        self.assertIn(wanted, found.failures[0].command)
        [failure] = read(PYTEST, part("pytest")).failures
        self.assertEqual(failure.name, "tests/docs/test_links.py::TestLinks::test_one[a b]")
        self.assertTrue(failure.command.endswith("/pytest 'tests/docs/test_links.py::TestLinks::test_one[a b]'"))
        [failure] = read(VITEST, part("junit", folder="sdk/typescript")).failures
        self.assertEqual(failure.command, r"cd sdk/typescript && npx vitest run test/code.test.ts -t 'run\ \(code\)'")

    def test_a_report_that_is_missing_or_cut_off_counts_no_tests(self) -> None:
        self.assertEqual(read(NEXTEST[:90], part("nextest")), reports.Report(reports.Counts(), []))
        self.assertEqual(reports.read(part("nextest"), Path("/nowhere")), reports.Report(reports.Counts(), []))

    def test_the_lines_in_which_runners_count_are_found(self) -> None:
        text = "\n".join(
            [
                "\x1b[32m     Summary\x1b[0m [1.2s] 3 tests run: 3 passed",
                "12 passed, 1 skipped in 3.20s",
                "      Tests  111 passed (111)",
                "browser: 105 passed, 0 failed, 0 skipped",
                "Ran 4 tests in 0.1s",
                "nothing of interest passed here",
            ]
        )
        self.assertEqual(len(reports.summary_lines(text)), 5)


class History(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = Path(folder.name) / "runs.jsonl"

    def add(self, commit: str, loaded: bool, passed: bool = True) -> None:
        with mock.patch.object(history, "commit", lambda: commit):
            history.add("test", loaded, passed, 10.0, [] if passed else ["a test"], self.file)

    def next(self, commit: str) -> history.Next | None:
        with mock.patch.object(history, "commit", lambda: commit):
            return history.next_run("test", 3, 1, self.file)

    def test_a_series_continues_and_counts_its_own_commit_only(self) -> None:
        self.add("other", False)
        self.assertEqual(self.next("mine"), history.Next(1, False))
        self.add("mine", False)
        self.add("mine", False, passed=False)
        self.add("mine", False)
        self.assertEqual(self.next("mine"), history.Next(3, True))
        self.add("mine", True)
        self.assertIsNone(self.next("mine"))
        self.assertIn("failed: a test", history.table(self.file))

    def test_a_line_that_a_killed_run_cut_is_left_out(self) -> None:
        self.add("mine", False)
        with self.file.open("a") as file:
            file.write('{"commit": "mi')
        self.assertEqual(self.next("mine"), history.Next(2, False))


if __name__ == "__main__":
    unittest.main()
