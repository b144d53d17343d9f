"""The parts of `make test` and `make test-all`: what runs, where, for how long at most, and what it needs."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# The Python environment that `make python` creates.
PYTHON = ROOT / "target/python/bin"


@dataclass(frozen=True)
class Part:
    """One command whose exit status says whether its tests passed."""

    name: str
    # `test`: everyone runs it. `all`: only CI does, because it needs several nodes, injected faults, long
    # waits, other systems' clients or servers of third parties.
    door: str
    # Parts of one lane run one after the other. `first` runs before the others, which `--together` runs at the
    # same time.
    lane: str
    command: list[str]
    # The longest run, in seconds. It is for a part that hangs: a loaded machine needs far less.
    timeout_s: int
    # How its failed tests are found, see `reports.py`.
    report: str = "none"
    folder: str = "."
    environment: dict[str, str] = field(default_factory=dict)


def _nextest(profile: str) -> list[str]:
    return ["cargo", "nextest", "run", "--workspace", "--profile", profile]


def _pytest(*arguments: str) -> list[str]:
    return [str(PYTHON / "pytest"), "-p", "no:cacheprovider", "-o", "faulthandler_timeout=120", *arguments]


def _python_sdk() -> list[list[str]]:
    return [[str(PYTHON / "ruff"), "check", "-q", "."], [str(PYTHON / "ruff"), "format", "-q", "--check", "."], [str(PYTHON / "mypy")]]


def _shell(*commands: list[str]) -> list[str]:
    """Run several commands, each only if the one before succeeded."""
    import shlex

    return ["bash", "-euc", "\n".join(shlex.join(command) for command in commands)]


def parts() -> list[Part]:
    """All parts, in the order in which each lane runs them."""
    xterm = ROOT / "target/xterm"
    cases = ["cargo", "nextest", "run", "--workspace", "--profile", "soak", "--run-ignored", "only", "-E", "test(cases_for_xterm_js)"]
    compare = ["node", "crates/vt/tests/xterm/compare.mjs", str(xterm)]
    return [
        # It fills both cores, which would make tests slower, and ends soon if something is wrong.
        Part("lint", "all", "first", ["make", "--no-print-directory", "lint"], 1800),
        # It compares what is on the machine before and after, so no other test may run beside it.
        Part("runner", "test", "first", ["python3", "-m", "unittest", "-q", "test_reports", "test_doors", "test_cleanup"], 300, folder="tests/runner"),
        Part("rust", "test", "rust", _nextest("default"), 2400, "nextest"),
        Part("rust-all", "all", "rust", _nextest("all"), 2400, "nextest"),
        Part(
            "xterm", "test", "others",
            _shell(["rm", "-rf", str(xterm)], ["mkdir", "-p", str(xterm)], cases, compare),
            300,
            environment={"ISOLET_XTERM_CASES": str(xterm)},
        ),
        Part("typescript", "test", "others", _shell(["npx", "tsc", "--noEmit"], ["npx", "vitest", "run"]), 600, "junit", "sdk/typescript"),
        Part("browser", "test", "others", _shell(["npx", "tsc", "--noEmit"], ["npx", "playwright", "test", "--grep-invert", "@long"]), 1800, "junit", "tests/browser"),
        Part("browser-long", "all", "others", ["npx", "playwright", "test", "--grep", "@long"], 900, "junit", "tests/browser"),
        Part("python", "test", "others", _shell(*_python_sdk(), _pytest()), 900, "pytest", "sdk/python"),
        Part("openapi", "test", "others", _pytest("-q", "tests/openapi"), 300, "pytest"),
        Part("docs", "test", "others", _pytest("-q", "tests/docs"), 600, "pytest"),
        Part("traces", "test", "others", _pytest("-q", "tests/traces"), 300, "pytest"),
        Part("workflow", "all", "others", ["make", "--no-print-directory", "check-workflow"], 120),
        Part("kubernetes", "all", "others", _pytest("-q", "tests/kubernetes"), 300, "pytest"),
        Part("metrics", "all", "others", _pytest("-q", "tests/metrics"), 300, "pytest"),
        Part(
            "integrations", "all", "others",
            _shell([str(PYTHON / "ruff"), "check", "-q", "."], [str(PYTHON / "ruff"), "format", "-q", "--check", "."]),
            120,
            folder="integrations",
        ),
    ]


def environment() -> dict[str, str]:
    """The environment of every part: property tests use the same values in every run."""
    node = shutil.which("node")
    path = os.environ["PATH"]
    if node is not None and str(Path(node).parent) not in path.split(os.pathsep):
        path = f"{Path(node).parent}{os.pathsep}{path}"
    return {**os.environ, "PATH": path, "PROPTEST_RNG_SEED": os.environ.get("PROPTEST_RNG_SEED", "4")}
