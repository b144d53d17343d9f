#!/usr/bin/env python3
"""Rejects phrases that make a reader stop, in documents, comments, help texts and messages.

The list is short on purpose. Each phrase has a reason, and words to use instead.

    phrases.py            print each finding; exit with 1 if there is one
    phrases.py --count    print how often each phrase occurs
    phrases.py FILE ...   check these files alone
"""

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Files with prose. Recorded data, generated files and this list are left out.
SUFFIXES = {".md", ".rs", ".py", ".ts", ".tsx", ".mjs", ".sh", ".toml", ".service", ".yml", ".yaml"}
NAMES = {"Makefile", "run", "check"}
LEFT_OUT = ("tests/tidy/phrases.py", "tests/tidy/test_phrases.py", "tests/baseline/golden/", "tests/promises/INDEX.md")


@dataclass(frozen=True)
class Phrase:
    """A phrase that is rejected."""

    pattern: str
    reason: str
    instead: str


PHRASES = (
    Phrase(r"not to be had|(?:can|could) be had", "not idiomatic", "not available, not supported"),
    Phrase(r"(?:is|are|was|were|be|been|being) told", "hides who says it to whom", "X reports, answers, sends Y"),
    Phrase(r"somebody|whoever", "hides the role", "a client, a user, the operator"),
    Phrase(r"anew", "archaic", "again, restart, recreate"),
    Phrase(r"by itself|by themselves|of its own accord", "ambiguous", "automatically, alone"),
    Phrase(r"unless told|unless it is told", "hides who says it", "by default"),
    Phrase(r"so much|so many|for so long|so long as", "refers to nothing", "the number, or `up to N`"),
    Phrase(r"meanwhile", "vague", "while X runs, until Y"),
    Phrase(r"lets? go", "colloquial", "release, close, give up"),
    Phrase(r"(?:what|who) (?:is|was) (?:not )?there", "a riddle", "a missing file, an existing file"),
    Phrase(r"for who\b|who comes", "a riddle", "for a client that reconnects"),
    Phrase(r"all the same", "ambiguous", "anyway, still"),
    Phrase(r"(?:a|the|ways?) way out|ways out", "a private term", "egress, an escape"),
    Phrase(r"made ahead|begun ahead|made before anybody", "a private term", "created in advance, warm pool"),
    Phrase(r"at this moment", "wordy", "now, currently"),
    Phrase(r"goes on being|go on being", "not idiomatic", "keeps, continues"),
    # In quotes it is a name in stored records.
    Phrase(r"(?<!\")(?:lent|lends?|lending)(?!\")", "a private term", "injected credential, inject"),
    Phrase(r"where there (?:is|was) (?:one|none)", "a riddle", "if any, if it exists"),
    Phrase(r"in the stead|in (?:its|their|his) stead", "archaic", "instead"),
    Phrase(r"likewise\.", "a comment that says nothing", "what the item is"),
)


def compiled(phrase: Phrase) -> re.Pattern[str]:
    """A phrase may continue on the next line of a comment, so its spaces match any white space."""
    words = phrase.pattern.replace(" ", r"\s+")
    return re.compile(rf"\b(?:{words})(?!\w)", re.IGNORECASE)


COMPILED = tuple((phrase, compiled(phrase)) for phrase in PHRASES)
# The marker of a comment at the beginning of a line.
MARKER = re.compile(r"(?m)^[ \t]*(?://[/!]?|#|\*)?[ \t]*")


def is_prose(path: str) -> bool:
    """Whether a file of the repository is checked."""
    if path.startswith(LEFT_OUT):
        return False
    file = Path(path)
    return file.suffix in SUFFIXES or file.name in NAMES


def committed() -> list[str]:
    """Files of the repository, and those that are about to be committed."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [path for path in listed.stdout.splitlines() if is_prose(path) and (ROOT / path).is_file()]


def findings(text: str) -> list[tuple[int, str, Phrase]]:
    """Line number, matched words and phrase of each finding. A phrase over a line end is found too."""
    plain = MARKER.sub("", text)
    found = []
    for phrase, pattern in COMPILED:
        for match in pattern.finditer(plain):
            line = plain.count("\n", 0, match.start()) + 1
            found.append((line, " ".join(match.group(0).split()), phrase))
    return sorted(found, key=lambda one: one[0])


def main(arguments: list[str]) -> int:
    count = "--count" in arguments
    paths = [path for path in arguments if not path.startswith("--")] or committed()
    totals: dict[str, int] = {}
    total = 0
    for path in paths:
        text = (ROOT / path).read_text(errors="replace")
        for number, words, phrase in findings(text):
            total += 1
            totals[phrase.pattern] = totals.get(phrase.pattern, 0) + 1
            if not count:
                print(f"{path}:{number}: “{words}”: {phrase.reason}; write: {phrase.instead}")
    if count:
        for pattern, times in sorted(totals.items(), key=lambda item: -item[1]):
            print(f"{times:6}  {pattern}")
        print(f"{total:6}  in all")
        return 0
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
