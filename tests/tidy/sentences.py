#!/usr/bin/env python3
"""Draws sentences at random from documents and comments, to be read as a stranger reads them.

    sentences.py [--count 200] [--seed 1] [--in PATH ...]

Prints `file:line: sentence`. The same seed draws the same sentences from the same tree.
"""

import argparse
import random
import re
import sys

from phrases import MARKER, ROOT, committed

# Lines without prose: code blocks of Markdown, tables' rules, attributes.
FENCE = re.compile(r"(?ms)^```.*?^```$")
# A comment block of a source file: consecutive lines that begin with a marker.
COMMENT = re.compile(r"(?m)(?:^[ \t]*(?://[/!]?|#)(?!\[)[^\n]*\n)+")
SENTENCE = re.compile(r"[A-Z`][^.!?\n]*(?:[.!?](?=\S)[^.!?\n]*)*[.!?]")
# Fewer words say too little to be judged.
WORDS_MIN = 6


def passages(path: str, text: str):
    """Pieces of prose with the offset at which each begins."""
    if path.endswith(".md"):
        blanked = FENCE.sub(lambda block: re.sub(r"[^\n]", " ", block.group(0)), text)
        yield 0, blanked
        return
    for block in COMMENT.finditer(text):
        yield block.start(), MARKER.sub(lambda mark: " " * len(mark.group(0)), block.group(0))


def sentences(path: str, text: str):
    """All sentences of a file, with their lines."""
    for offset, passage in passages(path, text):
        # A line end within a paragraph is a space; an empty line or a table's cell ends a sentence.
        joined = re.sub(r"\n(?![ \t]*\n)", " ", passage).replace("|", "\n")
        for match in SENTENCE.finditer(joined):
            words = match.group(0).split()
            if len(words) >= WORDS_MIN:
                yield text.count("\n", 0, offset + match.start()) + 1, " ".join(words)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--in", dest="paths", nargs="*", help="draw from files whose paths begin so")
    wanted = parser.parse_args()
    paths = [path for path in committed() if not wanted.paths or path.startswith(tuple(wanted.paths))]
    every = []
    for path in paths:
        every += [(path, line, one) for line, one in sentences(path, (ROOT / path).read_text(errors="replace"))]
    drawn = random.Random(wanted.seed).sample(every, min(wanted.count, len(every)))
    for path, line, sentence in sorted(drawn):
        print(f"{path}:{line}: {sentence}")
    print(f"{len(drawn)} of {len(every)} sentences", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
