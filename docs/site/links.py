"""Links between pages, when a page moves from its place in the repository to its place in the site."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

#: `[text](target)` and `![text](target)`, also with one level of brackets in the text.
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()\s]+)\)")
#: Fenced code blocks, and code spans: what looks like a link in them is none.
CODE = re.compile(r"^ *(`{3,}|~{3,}).*?^ *\1[`~]*$|(`+)(?!`).*?(?<!`)\2(?!`)", re.DOTALL | re.MULTILINE)


def outside_code(text: str) -> Iterator[tuple[str, bool]]:
    """Split Markdown into pieces, and tell for each whether it is code."""
    at = 0
    for code in CODE.finditer(text):
        # A code span in the text of a link belongs to the link, so spans are only separated with their line
        # when they are whole blocks.
        if code[1] is None:
            continue
        yield text[at : code.start()], False
        yield code[0], True
        at = code.end()
    yield text[at:], False


def replace_links(text: str, replace: Callable[[re.Match[str]], str]) -> str:
    """Replace the links of Markdown that are not in code blocks."""
    return "".join(piece if is_code else LINK.sub(replace, piece) for piece, is_code in outside_code(text))


def is_relative(target: str) -> bool:
    """Whether a link leads to a file of the repository."""
    return re.match(r"[a-z][a-z0-9+.-]*:|/|#", target) is None


def rewritten(text: str, source: str, page: str, pages: Mapping[str, str], root: Path) -> str:
    """Rewrite the links of a page.

    Args:
        text: Markdown.
        source: path of its file in the repository.
        page: path under which the site has it, as if that were a file of the repository.
        pages: paths of other pages that the site has under another path than the repository.
        root: the repository.

    Raises:
        FileNotFoundError: a link leads to no file.
    """

    def replace(link: re.Match[str]) -> str:
        target, _, anchor = link[3].partition("#")
        if not is_relative(link[3]):
            return link[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if not (root / path).exists():
            raise FileNotFoundError(f"{source}: {link[3]} leads to no file")
        path = "docs/README.md" if path == "README.md" else pages.get(path, path)
        in_site = path.startswith("docs/") and not path.startswith("docs/site/") and not (root / path).is_dir()
        if not in_site:
            return link[2]
        to = posixpath.relpath(path, posixpath.dirname(page))
        return f"{link[1]}[{link[2]}]({to}{'#' + anchor if anchor else ''})"

    return replace_links(text, replace)
