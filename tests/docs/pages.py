"""Blocks of a page of the documentation, and how to run them."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import traceback
from dataclasses import dataclass
from pathlib import Path

#: Languages of blocks that are run.
RUN = ("python", "sh")
#: In front of a block that is not run.
NOT_RUN = re.compile(r"<!-- not run: .+ -->\s*$")
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
#: Time limit of a block of shell commands, in seconds.
_SHELL_S = 240


@dataclass(frozen=True)
class Block:
    """A block that is run."""

    language: str
    code: str
    #: Line of the page on which the code begins.
    line: int
    #: Output in the block of `text` that follows it; `…` stands for any text. `None` without such a block.
    output: str | None


def blocks(text: str) -> list[Block]:
    """Find the blocks of a page."""
    fences = list(_FENCE.finditer(text))
    found = []
    for fence, after in zip(fences, [*fences[1:], None], strict=True):
        if fence[1] not in RUN or NOT_RUN.search(text[: fence.start()]):
            continue
        follows = after is not None and after[1] == "text" and not text[fence.end() : after.start()].strip()
        output = after[2] if after is not None and follows else None
        found.append(Block(fence[1], fence[2], text[: fence.start()].count("\n") + 2, output))
    return found


def matches(output: str, expected: str) -> bool:
    """Whether output is the expected one. Spaces at the ends of lines and the last empty lines do not matter."""
    lines = [re.sub(r"[ \t]+$", "", text.rstrip(), flags=re.MULTILINE) for text in (output, expected)]
    pattern = ".*".join(re.escape(part) for part in lines[1].split("…"))
    return re.fullmatch(pattern, lines[0], re.DOTALL) is not None


def run(page: Path, folder: Path) -> list[str]:
    """Run the blocks of a page in a folder, one after the other; the Python blocks share their variables.

    Returns:
        a description of each block that failed or printed something else. The first error ends the page.
    """
    os.chdir(folder)
    scope: dict[str, object] = {"__name__": "__main__"}
    wrong = []
    for block in blocks(page.read_text()):
        place = f"{page.name}:{block.line}"
        output, error = _python(block, place, scope) if block.language == "python" else _shell(block)
        if error:
            return [*wrong, f"{place}: {error}\n{output}"]
        if block.output is not None and not matches(output, block.output):
            wrong.append(f"{place}: expected\n{block.output}\nbut it printed\n{output}")
    return wrong


def _python(block: Block, place: str, scope: dict[str, object]) -> tuple[str, str]:
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            exec(compile(block.code, place, "exec"), scope)
    except Exception:
        return out.getvalue(), traceback.format_exc()
    return out.getvalue(), ""


def _shell(block: Block) -> tuple[str, str]:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.code],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_SHELL_S,
        check=False,
    )
    return done.stdout, f"exit code {done.returncode}" if done.returncode else ""
