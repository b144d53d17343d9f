#!/usr/bin/env python3
"""Makes the client that blocks, and its tests, out of those for asyncio.

tools/make_sync.py           writes them
tools/make_sync.py --check   ends with 1 where they are not what would be written
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: From where to where. ``io.py`` and ``conftest.py`` of both sides are written by hand.
PACKAGES = (("src/isolet/_async", "src/isolet/_sync"), ("tests/_async", "tests/_sync"))
BY_HAND = frozenset({"__init__.py", "io.py", "conftest.py"})

WORDS = (
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\bAsync([A-Z]\w*)", r"\1"),
    (r"\bStopAsyncIteration\b", "StopIteration"),
    (r"\b__a(enter|exit|iter|next)__\b", r"__\1__"),
    (r"\ba(close|read|iter_bytes|iter_lines)\(", r"\1("),
    (r"\bCallable\[\[\], Awaitable\[None\]\]", "Callable[[], None]"),
    (r"import Awaitable, Callable\b", "import Callable"),
    (r"``async (with|for)``", r"``\1``"),
    (r"\b_async\b", "_sync"),
    (r", for asyncio\b", ""),
    (r"\bSeveral tasks\b", "Several threads"),
    (r"\bOne task reads\b", "One thread reads"),
    (r"\bin another task or thread\b", "in another thread"),
    (r"\(cancelled, or its connection lost\)", "(interrupted, or its connection lost)"),
    (r"@pytest\.mark\.anyio\n", ""),
    (r"  # noqa: ASYNC\d+", ""),
)


def translated(text: str) -> str:
    """The same program without ``async``."""
    for pattern, instead in WORDS:
        text = re.sub(pattern, instead, text)
    first, rest = text.split("\n", 1)
    return f"{first}\n# Made by tools/make_sync.py from its async twin: change that one.\n{rest}"


def main() -> int:
    """Writes, or compares."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    check = parser.parse_args().check
    stale = 0
    for source, target in PACKAGES:
        wanted = {
            file.name: translated(file.read_text())
            for file in sorted((ROOT / source).glob("*.py"))
            if file.name not in BY_HAND
        }
        there = {file.name for file in (ROOT / target).glob("*.py")} - BY_HAND
        for name in sorted(there - wanted.keys()):
            stale += 1
            print(f"{target}/{name}: has no twin", file=sys.stderr)
        for name, text in wanted.items():
            file = ROOT / target / name
            if file.exists() and file.read_text() == text:
                continue
            stale += 1
            if check:
                print(f"{target}/{name}: not what tools/make_sync.py would write", file=sys.stderr)
            else:
                file.write_text(text)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
