"""Runs all samples of the README and all examples."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from server import KEY, Server

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
#: Expected output of each example.
EXAMPLES = {
    "agent_loop.py": "done after 1 fix: 2 words\n/workspace/project\n[0, ",
    "resume_terminal.py": "attached: ['first']\nTrue TerminalExit(code=3, signal=None)\n",
    "draw_a_figure.py": "a figure with 5 bars\nerror of the code: ZeroDivisionError\n",
    "fix_the_tests.py": "after: 1 line changed, the tests pass\n",
    "copy_directory.py": "main.py:2: print('copied')  # later: more\ncopied\nfirst sandbox deleted: True\n",
    "serve_and_fetch.py": "200 you asked for /a?b=c\n",
    "watch_and_build.py": "build 3\n",
}
EXPECTED_OUTPUT = {
    "demo": "0 hello",
    "demo-async": "one\ntwo",
    "demo-stream": "stdout",
    "demo-shell": "hello you\n/tmp",
    "demo-terminal": "the answer is 42",
    "demo-network": "none",
    "demo-ports": "<h1>here</h1> [ListeningPort(port=8000",
    "demo-code": "7.0 CodeResult(kind='result', data={'text/plain': '7.0'})",
    "demo-sessions": "5\n",
    "demo-files": "/workspace/src/main.py 11 0o755",
    "demo-scope": "not_found",
    "demo-git": "main /workspace/project",
    "demo-audit": "sandbox.created",
    "demo-sleep": "hello",
    "demo-pause": "3\n[",
    "demo-snapshot": "changed ",
    "demo-errors": "sandbox_exists",
    "no sandbox": "key_",
    "webhook": "('sandbox.failed',) whsec_\nNone\n",
}


def _name(sample: str) -> str:
    match = re.search(r'client\.sandbox\("([^"]+)"', sample)
    if "create_webhook" in sample:
        return "webhook"
    return match[1] if match else "no sandbox"


def _run(sample: str, server: Server, folder: Path) -> str:
    environment = {**os.environ, "ISOLET_URL": server.url, "ISOLET_API_KEY": KEY}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", sample],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# Promises: Y10.
@pytest.mark.parametrize("sample", SAMPLES, ids=_name)
def test_a_sample_runs(sample: str, server: Server, tmp_path: Path) -> None:
    assert EXPECTED_OUTPUT[_name(sample)] in _run(sample, server, tmp_path)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs(name: str, server: Server, tmp_path: Path) -> None:
    assert EXAMPLES[name] in _run((ROOT / "examples" / name).read_text(), server, tmp_path)


def test_the_agent_loop_of_the_checkout_runs_without_arguments(server: Server, tmp_path: Path) -> None:
    script = ROOT.parents[1] / "examples/agent-loop/agent_loop.py"
    environment = {**os.environ, "ISOLET_URL": server.url, "ISOLET_API_KEY": KEY}
    done = subprocess.run(
        [sys.executable, script],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("; 0 not as expected\n")


# Promises: Y10.
def test_every_sample_has_an_expected_output() -> None:
    assert {_name(sample) for sample in SAMPLES} == EXPECTED_OUTPUT.keys()
    assert {file.name for file in (ROOT / "examples").glob("*.py")} == EXAMPLES.keys()
