"""The code of the tutorials, run as the pages show it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pages
import pytest
from conftest import ROOT

PAGES = [ROOT / "docs/quickstart.md", *sorted((ROOT / "docs/tutorials").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_code_of_a_page_runs_and_prints_what_the_page_says(page: Path) -> None:
    command = ["unshare", "--net", "--", sys.executable, "-W", "error", Path(__file__).parent / "run_page.py", page]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_page_states_an_output() -> None:
    for page in PAGES:
        assert any(block.output for block in pages.blocks(page.read_text())), page.name


def test_a_block_that_prints_something_else_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    page.write_text(
        "```python\nx = 1\nprint(x, 'and', 3)\n```\n\n```text\n1 … 3\n```\n"
        "```sh\necho two\n```\n\n```text\nthree\n```\n"
        "<!-- not run: a reason -->\n```python\nmissing\n```\n```python\nx / 0\n```\n"
    )
    wrong = pages.run(page, tmp_path)
    assert [one.splitlines()[0] for one in wrong] == [
        "page.md:10: expected",
        "page.md:21: Traceback (most recent call last):",
    ]
