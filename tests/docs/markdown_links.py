"""Links of the Markdown files of the repository, as a reader of the files follows them."""

from __future__ import annotations

import posixpath
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "docs/site"))

import links  # noqa: E402

_HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)


def files() -> list[str]:
    """Paths of all Markdown files: those of git, and new ones that it does not ignore."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [path for path in listed if (ROOT / path).exists()]


def anchors(text: str) -> set[str]:
    """Anchors of the headings, as the usual programs that show Markdown give them."""
    found: set[str] = set()
    prose = "".join(piece for piece, is_code in links.outside_code(text) if not is_code)
    for heading in _HEADING.findall(prose):
        plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        number = 0
        while (name := f"{slug}-{number}" if number else slug) in found:
            number += 1
        found.add(name)
    return found


def broken(path: str, text: str) -> Iterator[str]:
    """Descriptions of the links of a file that lead nowhere. Links to other hosts are not followed."""
    prose = "".join(piece for piece, is_code in links.outside_code(text) if not is_code)
    # What looks like a link in a code span is none.
    prose = re.sub(r"(`+)(?!`)[^\n]*?(?<!`)\1(?!`)(?![^\[\]\n]*\]\()", "", prose)
    for link in links.LINK.finditer(prose):
        target, _, anchor = link[3].partition("#")
        if target and not links.is_relative(target):
            continue
        to = posixpath.normpath(posixpath.join(posixpath.dirname(path), unquote(target))) if target else path
        if to.startswith("../") or not (ROOT / to).exists():
            yield f"{path}: {link[3]} leads to no file"
        elif anchor and to.endswith(".md"):
            page = text if to == path else (ROOT / to).read_text()
            if anchor not in anchors(page):
                yield f"{path}: {link[3]} leads to no heading"
