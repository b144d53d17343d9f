"""The code of the tutorials, run as the pages show it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pages
import pytest
from conftest import ROOT

PAGES = [ROOT / "docs/quickstart.md", *sorted((ROOT / "docs/tutorials").glob("*.md"))]


@pytest.fixture(scope="module")
def wrong() -> dict[str, list[str]]:
    """What is wrong on each page: all run against one server, in a network namespace of its own."""
    runner = [sys.executable, Path(__file__).parent / "run_pages.py"]
    command = ["unshare", "--net", "--", *runner, *(str(page) for page in PAGES)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=540)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_code_of_a_page_runs_and_prints_what_the_page_says(page: Path, wrong: dict[str, list[str]]) -> None:
    assert "\n".join(wrong[str(page)]) == ""


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
