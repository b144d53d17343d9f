#!/usr/bin/env python3
"""Counts what makes the Rust code hard to read, as a table; `--list NAME` shows the places.

Test modules and the folders `tests` and `bench` count too: they are read as often. Only the row
`json-by-format` counts product code alone, because a test may write the JSON that it sends and
expects; `json-by-format-in-tests` counts the rest. Files that a generator writes are left out.
"""

import argparse
import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

# A packed statement: `let (a, b) = (x, y);` is two statements on one line. A pattern that can fail,
# such as `let (Some(a), None) = (x, y) else`, tests two values together and is not one.
PACKED_LET = re.compile(r"\blet \((?:mut )?[a-z_]\w*(?:,\s*(?:mut )?[a-z_]\w*)+,?\)(?:\s*:[^=;]*)?\s*=\s*\((?!\s*\))")
# A parameter without a name of its own: `fn f(&self, (a, b): (A, B))`.
TUPLE_PARAMETER = re.compile(r"(?:\(|,)\s*\((?:mut )?\w+(?:,\s*(?:mut )?\w+)+\):\s*\(")
# JSON that is written by hand: a format string with an escaped or raw member name.
JSON_BY_FORMAT = re.compile(r"\b(?:format|write|writeln)!\([^;]*?(?:\\\"\w+\\\":|r#?\"[^\"]*\"\w+\":)", re.S)
DEAD_CODE = re.compile(r"#\[allow\([^)]*dead_code[^)]*\)\]")
DOC = re.compile(r"^\s*//[/!] ?(.*)$")
# Associated types (`type Error = …;` inside an `impl`) are not types of their own.
TYPE = re.compile(
    r"^(?:\s*(?:pub(?:\([a-z]+\))? )?(?:struct|enum|union|trait)|(?:pub(?:\([a-z]+\))? )?type) (\w+)", re.M
)
STRUCT = re.compile(r"^( *)(?:pub(?:\([a-z]+\))? )?struct (\w+)[^;(]*\{$")
FIELD = re.compile(r"^ *(?:pub(?:\([a-z]+\))? )?(?:r#)?\w+: ")
# More fields need a reason: a comment at the struct that speaks of its fields.
FIELDS_MAX = 12


def sources():
    """All Rust files of the workspace, sorted."""
    for folder in ("crates", "tests", "bench"):
        for path in sorted((ROOT / folder).rglob("*.rs")):
            if "target" not in path.parts and "node_modules" not in path.parts:
                yield path


def without_comments(text):
    """The text with its line comments blanked out, so that places keep their lines."""
    return re.sub(r"(?m)^\s*//.*$", "", text)


def product_code(path, text):
    """The text with its test module blanked out; nothing of a file that holds only tests."""
    parts = path.relative_to(ROOT).parts
    if parts[0] != "crates" or "tests" in parts or path.stem == "tests" or path.stem.endswith("_test"):
        return ""
    start = text.find("\n#[cfg(test)]\nmod ")
    return text if start < 0 else text[:start]


def places(pattern, path, text):
    """Where a pattern matches, as `file:line: text`."""
    for match in pattern.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        shown = text.splitlines()[line - 1].strip()
        yield f"{path.relative_to(ROOT)}:{line}: {shown}"


def short_docs(path, text):
    """Doc comments of at most three words, which say no more than a name does."""
    block = []
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        match = DOC.match(line)
        if match and match.group(1).startswith("Promises:"):
            continue
        if match:
            block.append(match.group(1))
            continue
        words = " ".join(block).split()
        if block and len(words) <= 3:
            yield f"{path.relative_to(ROOT)}:{number - 1}: {' '.join(words)}"
        block = []


def shared_types(files):
    """Names that stand for three or more types."""
    where = collections.defaultdict(list)
    for path, text in files:
        for name in TYPE.findall(without_comments(text)):
            where[name].append(str(path.relative_to(ROOT)))
    for name, paths in sorted(where.items(), key=lambda one: (-len(one[1]), one[0])):
        if len(paths) >= 3:
            yield f"{name}: {len(paths)} types: {', '.join(sorted(set(paths)))}"


def wide_structs(path, text):
    """Structs of more than `FIELDS_MAX` fields whose comment gives no reason for it."""
    comment = ""
    opened = None
    for number, line in enumerate(text.splitlines(), start=1):
        if opened:
            indent, name, start, about, fields = opened
            if line == f"{indent}}}":
                if fields > FIELDS_MAX and "field" not in about.lower():
                    yield f"{path.relative_to(ROOT)}:{start}: {name} has {fields} fields"
                opened = None
            elif FIELD.match(line):
                opened = (indent, name, start, about, fields + 1)
            continue
        match = STRUCT.match(line)
        if match:
            opened = (match.group(1), match.group(2), number, comment, 0)
            comment = ""
        elif line.strip().startswith(("//", "#[")):
            comment += line
        else:
            comment = ""


def main():
    """Prints the table, or the places of one row."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", metavar="NAME", help="show the places of one row")
    wanted = parser.parse_args().list
    files = [(path, path.read_text()) for path in sources()]
    code = [(path, without_comments(text)) for path, text in files]

    def found(pattern):
        return [place for path, text in code for place in places(pattern, path, text)]

    product = [(path, product_code(path, text)) for path, text in code]
    json = [one for path, text in product for one in places(JSON_BY_FORMAT, path, text)]
    rows = {
        "packed-lets": found(PACKED_LET),
        "tuple-parameters": found(TUPLE_PARAMETER),
        "json-by-format": json,
        "json-by-format-in-tests": [one for one in found(JSON_BY_FORMAT) if one not in set(json)],
        "dead-code-allowed": found(DEAD_CODE),
        "short-docs": [one for path, text in files for one in short_docs(path, text)],
        "wide-structs": [one for path, text in files for one in wide_structs(path, text)],
        "shared-type-names": list(shared_types(files)),
    }
    if wanted is not None:
        if wanted not in rows:
            sys.exit(f"no row {wanted}: {', '.join(rows)}")
        print("\n".join(rows[wanted]))
        return
    for name, hits in rows.items():
        print(f"{name:24} {len(hits):6}")
    size = len((ROOT / "ARCHITECTURE.md").read_bytes())
    print(f"{'architecture-bytes':24} {size:6}")


if __name__ == "__main__":
    main()
