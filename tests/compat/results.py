"""Results of suites, and the lists of tests that are not expected to pass."""

import json
import pathlib
import xml.etree.ElementTree

# Of each suite, the most that the list of tests that cannot apply may hold.
NOT_APPLICABLE_MAX = 0.10


class Suite:
    def __init__(self, name, root):
        # The path below which lists name tests of this suite.
        self.name, self.root = name, root
        self.passed, self.failed, self.skipped = set(), {}, set()

    def all(self):
        return self.passed | set(self.failed) | self.skipped

    @classmethod
    def of_junit(cls, name, file, prefix, tests):
        suite = cls(name, f"{prefix}{tests}/")
        if not file.exists():
            return suite
        for case in xml.etree.ElementTree.parse(file).iter("testcase"):
            test = f"{prefix}{case.get('file')}::{case.get('name')}"
            kinds = {child.tag: child for child in case}
            fault = kinds.get("failure")
            fault = kinds.get("error") if fault is None else fault
            if fault is not None:
                suite.passed.discard(test)
                suite.failed[test] = (fault.get("message") or "").splitlines()[:1]
            elif "skipped" in kinds:
                suite.skipped.add(test)
            elif test not in suite.failed:
                suite.passed.add(test)
        return suite

    def add_vitest(self, file, root, prefix):
        """Adds a report. A test that has passed in another one has passed."""
        if not file.exists():
            self.failed[f"{prefix}(no report)"] = [f"there is no {file.name}"]
            return
        for part in json.loads(file.read_text())["testResults"]:
            path = pathlib.Path(part["name"]).relative_to(root)
            if part["status"] == "failed" and not part["assertionResults"]:
                self.failed[f"{prefix}{path}::(file)"] = part.get("message", "").splitlines()[:1]
            for one in part["assertionResults"]:
                test = f"{prefix}{path}::{one['fullName'].strip()}"
                if one["status"] == "passed":
                    self.passed.add(test)
                    self.failed.pop(test, None)
                elif one["status"] == "failed" and test not in self.passed:
                    self.failed[test] = (one["failureMessages"] or [""])[0].splitlines()[:1]
                elif one["status"] != "failed":
                    self.skipped.add(test)


def entries(file):
    """The names of a list: a directory, a file or `file::test`, each before a reason."""
    found = []
    for line in file.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            name, _, reason = line.partition("  ")
            if not reason.strip():
                raise SystemExit(f"{file.name}: {name} has no reason")
            found.append(name)
    return found


def covers(entry, test):
    file = test.partition("::")[0]
    return test == entry or file == entry or (entry.endswith("/") and file.startswith(entry))


def report(suites, here):
    """Prints a row for each suite, and what was not expected. Returns the exit status."""
    beyond = entries(here / "e2b-not-applicable")
    known = entries(here / "e2b-known-failures")
    status = 0
    for suite in suites:
        for name in unknown_names(suite, beyond + known):
            print(f"{suite.name}: a list names {name}, which the suite does not have")
            status = 1
    row = "{:<20} {:>7} {:>7} {:>8} {:>15} {:>8}"
    print(row.format("suite", "passed", "failed", "skipped", "not applicable", "passed"))
    for suite in suites:
        total = len(suite.all()) - len(suite.skipped)
        if not total:
            print(f"{suite.name}: no results; see its log below target/compat")
            status = 1
            continue
        # Of a file that cannot apply, the tests that need no server pass.
        apart = {test for test in suite.failed if any(covers(one, test) for one in beyond)}
        passed = len(suite.passed)
        failed = set(suite.failed) - apart
        share = passed / max(1, passed + len(failed))
        cells = (suite.name, passed, len(failed), len(suite.skipped), len(apart), f"{share:.1%}")
        print(row.format(*cells))
        if len(apart) > NOT_APPLICABLE_MAX * total:
            print(f"  {len(apart)} of {total} tests are called not applicable; at most a tenth may be")
            status = 1
        for test in sorted(failed):
            if not any(covers(one, test) for one in known):
                print(f"  FAILED {test}: {' '.join(suite.failed[test])[:160]}")
                status = 1
        for test in sorted(suite.passed):
            if test in known:
                print(f"  passes, and is called a known failure: {test}")
    return status


def unknown_names(suite, names):
    """Names of lists below the paths of a suite that none of its tests has."""
    own = [name for name in names if name.startswith(suite.root)]
    return [name for name in own if not any(covers(name, test) for test in suite.all())]
