"""Every sample of the README runs, and so does every example."""

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
EXAMPLES = [file.read_text() for file in sorted((ROOT / "examples").glob("*.py"))]
SAID = {
    "demo": "0 hello",
    "demo-async": "one\ntwo",
    "demo-stream": "stdout",
    "demo-shell": "hello you\n/tmp",
    "demo-terminal": "the answer is 42",
    "demo-ports": "<h1>here</h1> [ListeningPort(port=8000",
    "demo-code": "7.0",
    "demo-kept": "5\n",
    "demo-files": "/workspace/src/main.py 11 0o755",
    "demo-scope": "not_found",
    "demo-sleep": "hello",
    "demo-errors": "sandbox_exists",
}


def _name(sample: str) -> str:
    match = re.search(r'client\.sandbox\("([^"]+)"', sample)
    return match[1] if match else "no sandbox"


@pytest.mark.parametrize("sample", [*SAMPLES, *EXAMPLES], ids=_name)
def test_a_sample_runs(sample: str, server: Server, tmp_path: Path) -> None:
    environment = {**os.environ, "ISOLET_URL": server.url, "ISOLET_API_KEY": KEY}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", sample],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert SAID.get(_name(sample), "") in done.stdout


def test_every_sample_is_looked_at() -> None:
    assert {_name(sample) for sample in SAMPLES} == SAID.keys()
