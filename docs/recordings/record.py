#!/usr/bin/env python3
"""Records a first session with a real server, and draws it.

Starts `isolet serve` on a free port of the loopback, with a data directory of its own in /tmp, and
types the lines of LINES into a bash in a PTY. Writes two files beside itself: `first-session.cast`
(asciicast version 2, for `asciinema play`) and `first-session.svg` (animated, for the README).
Needs root, as the server does.

    record.py [--programs DIRECTORY]
"""

import argparse
import html
import json
import os
import pty
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time
import fcntl
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

COLUMNS = 88
ROWS = 32

LINES = [
    "# A session is one bash: directory, variables and functions stay.",
    "isolet exec demo --session dev 'cd /tmp; X=42'",
    "isolet exec demo --session dev 'pwd; echo $X'",
    "# An unclosed quote is an error, and the shell lives.",
    "isolet exec demo --session dev 'echo \"never closed'",
    "# A timeout ends the command, and the shell lives.",
    "isolet exec demo --session dev --timeout 1 'sleep 60'",
    "# Kill the server while a program runs.",
    "isolet start demo --id count 'for i in 1 2 3 4 5; do echo line $i; sleep 2; done'",
    "kill -9 $(pid-of-server)",
    "start-server",
    "# The program, its output and the shell are still there.",
    "isolet logs demo count --follow",
    "isolet exec demo --session dev 'pwd; echo $X'",
    "isolet rm demo",
]

# The shell writes this before each prompt, so that the script knows when a command has ended.
PROMPT_MARK = "\x1b]133;A\x07"
ESCAPES = re.compile(r"\x1b(\][^\x07]*\x07|\[[0-9;?]*[A-Za-z]|[()][A-Z0-9])")
# Seconds per typed character, before Enter, and for reading what a command printed.
TYPING_S = 0.018
ENTER_S = 0.25
READING_S = 0.6
# The longest wait for one command.
COMMAND_MAX_S = 60


def find_programs(given: str | None) -> Path:
    """The directory of the four programs."""
    named = given or os.environ.get("ISOLET_PROGRAMS")
    places = [Path(named)] if named else [ROOT / "dist", ROOT / "target/programs"]
    for place in places:
        if (place / "isolet").is_file():
            return place.resolve()
    sys.exit("no programs found: run `make build`, or pass --programs DIRECTORY")


def free_port() -> int:
    """A port of the loopback that nothing listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Place:
    """A data directory, the helper scripts that the session uses, and its environment."""

    def __init__(self, programs: Path):
        self.directory = Path(tempfile.mkdtemp(prefix="isolet-recording-"))
        self.pid_file = self.directory / "server.pid"
        tools = self.directory / "bin"
        tools.mkdir()
        log = self.directory / "server.log"
        self.script(tools / "pid-of-server", f"cat {self.pid_file}")
        self.script(
            tools / "start-server",
            f"isolet serve >>{log} 2>&1 & echo $! >{self.pid_file}\n"
            f"until curl -fs http://$ISOLET_LISTEN/health >/dev/null; do sleep 0.05; done",
        )
        self.environment = {
            "PATH": f"{tools}:{programs}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": str(self.directory),
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
            "ISOLET_DATA_DIR": str(self.directory / "data"),
            "ISOLET_LISTEN": f"127.0.0.1:{free_port()}",
            "PS1": "\\[" + PROMPT_MARK.replace("\x1b", "\\e").replace("\x07", "\\a") + "\\]$ ",
        }

    @staticmethod
    def script(path: Path, text: str) -> None:
        path.write_text(f"#!/bin/bash\n{text}\n")
        path.chmod(0o755)

    def start(self) -> None:
        subprocess.run([self.directory / "bin/start-server"], env=self.environment, check=True)

    def remove(self) -> None:
        """Deletes what is left of the sandbox, stops the server by its pid, and removes the files."""
        isolet = ["isolet", "rm", "demo"]
        quiet = subprocess.DEVNULL
        subprocess.run(isolet, env=self.environment, stdout=quiet, stderr=quiet, check=False)
        pid = int(self.pid_file.read_text())
        try:
            os.kill(pid, signal.SIGTERM)
            while Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z":
                time.sleep(0.05)
        except (ProcessLookupError, FileNotFoundError):
            pass
        shutil.rmtree(self.directory)


class Recorder:
    """A bash in a PTY, and everything that it printed, with its times."""

    def __init__(self, place: Place):
        pid, self.terminal = pty.fork()
        if pid == 0:
            shell = ["bash", "--norc", "--noprofile", "--noediting", "-i"]
            os.execvpe("bash", shell, place.environment)
        self.pid = pid
        size = struct.pack("HHHH", ROWS, COLUMNS, 0, 0)
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, size)
        self.begin = time.monotonic()
        self.events: list[tuple[float, str]] = []
        self.wait_for_prompt()
        # The first prompt is the first event, whatever the shell took to start.
        self.begin = time.monotonic()
        self.events = [(0.0, PROMPT_MARK + "$ ")]

    def read(self, seconds: float) -> str:
        """What the terminal shows within this time, recorded."""
        ready, _, _ = select.select([self.terminal], [], [], seconds)
        if not ready:
            return ""
        text = os.read(self.terminal, 65536).decode(errors="replace")
        self.events.append((time.monotonic() - self.begin, text))
        return text

    def wait_for_prompt(self) -> None:
        end = time.monotonic() + COMMAND_MAX_S
        shown = ""
        while not shown.endswith(PROMPT_MARK + "$ "):
            if time.monotonic() > end:
                sys.exit(f"a command took longer than {COMMAND_MAX_S} s; it printed {shown!r}")
            shown += self.read(0.1)

    def type(self, line: str) -> None:
        """Types one line and waits until its command has ended."""
        for letter in line:
            os.write(self.terminal, letter.encode())
            end = time.monotonic() + TYPING_S
            while (left := end - time.monotonic()) > 0:
                self.read(left)
        time.sleep(ENTER_S)
        os.write(self.terminal, b"\n")
        self.wait_for_prompt()
        if not line.startswith("#"):
            time.sleep(READING_S)

    def close(self) -> None:
        os.close(self.terminal)
        os.waitpid(self.pid, 0)


def cast(events: list[tuple[float, str]]) -> str:
    """The recording as asciicast version 2."""
    head = {"version": 2, "width": COLUMNS, "height": ROWS, "title": "A first session with Isolet"}
    lines = [json.dumps(head)]
    lines += [json.dumps([round(at, 3), "o", text.replace(PROMPT_MARK, "")]) for at, text in events]
    return "\n".join(lines) + "\n"


class Row:
    """One row of the terminal, and when its first and last characters appeared."""

    def __init__(self, begin: float):
        self.begin = begin
        self.end = begin
        self.text = ""
        self.typed = False


def rows(events: list[tuple[float, str]]) -> list[Row]:
    """The rows that the session filled. It has no full-screen programs, so lines are enough."""
    found = [Row(0.0)]
    for at, text in events:
        for part in re.split(r"(\r?\n)", text):
            if part in ("\n", "\r\n"):
                found.append(Row(at))
                continue
            row = found[-1]
            row.typed |= PROMPT_MARK in part
            plain = ESCAPES.sub("", part).replace("\r", "")
            if plain and not row.text:
                row.begin = at
            if plain:
                row.text += plain
                row.end = at
    return [row for row in found if row.text.strip() not in ("", "$")]


WIDTH_PX = 8.43
HEIGHT_PX = 19
MARGIN_PX = 16
# Time for reading the whole before it begins again, in seconds.
PAUSE_S = 6.0


def svg(all_rows: list[Row]) -> str:
    """The rows as an SVG that shows them at their times, again and again."""
    total = all_rows[-1].end + PAUSE_S
    width = round(COLUMNS * WIDTH_PX + 2 * MARGIN_PX)
    height = (len(all_rows) + 1) * HEIGHT_PX + 2 * MARGIN_PX
    style: list[str] = []
    body: list[str] = []
    for number, row in enumerate(all_rows):
        y = MARGIN_PX + (number + 1) * HEIGHT_PX
        shown = 100 * row.begin / total
        if shown > 0:
            style.append(
                f"@keyframes r{number}{{0%,{shown:.2f}%{{opacity:0}}"
                f"{min(shown + 0.01, 100):.2f}%,100%{{opacity:1}}}}"
            )
            style.append(f"#r{number}{{animation:r{number} {total:.2f}s infinite}}")
        body.append(f'<g id="r{number}">{drawn(row, y)}')
        if row.typed:
            letters = len(row.text) - 2
            left = MARGIN_PX + 2 * WIDTH_PX
            span = letters * WIDTH_PX
            ended = 100 * row.end / total
            style.append(
                f"@keyframes t{number}{{0%,{shown:.2f}%{{transform:translateX(0);"
                f"animation-timing-function:steps({letters})}}"
                f"{ended:.2f}%,100%{{transform:translateX({span:.1f}px)}}}}"
            )
            style.append(f"#t{number}{{animation:t{number} {total:.2f}s infinite}}")
            # A cover that moves to the right. At rest it lies behind the edge, outside of the picture.
            body.append(
                f'<svg x="{left:.1f}" y="{y - 15}" width="{span:.1f}" height="{HEIGHT_PX}">'
                f'<rect id="t{number}" class="cover" width="{span:.1f}" height="{HEIGHT_PX}"/></svg>'
            )
        body.append("</g>")
    name = "A terminal: a session keeps its state; the server is killed, and nothing is lost"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img" aria-label="{name}">',
            f"<title>{name}</title>",
            "<style>",
            "text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#d6deeb;"
            "white-space:pre}",
            ".note{fill:#7f8ea3}.prompt{fill:#7fdbca}.typed{fill:#fff}.cover{fill:#10161f}",
            *style,
            "@media(prefers-reduced-motion:reduce){g,rect{animation:none!important}"
            ".cover{display:none}}",
            "</style>",
            f'<rect width="{width}" height="{height}" rx="8" fill="#10161f"/>',
            *body,
            "</svg>",
            "",
        ]
    )


def drawn(row: Row, y: int) -> str:
    """One row as SVG text of a fixed width per character."""
    def text(kind: str, x: float, what: str) -> str:
        wide = f'textLength="{len(what) * WIDTH_PX:.1f}" lengthAdjust="spacingAndGlyphs"'
        content = html.escape(what, quote=False).replace(" ", "\u00a0")
        return f'<text class="{kind}" x="{x:.1f}" y="{y}" {wide}>{content}</text>'

    if not row.typed:
        return text("out", MARGIN_PX, row.text)
    kind = "note" if row.text.startswith("$ #") else "typed"
    prompt = text("prompt", MARGIN_PX, "$")
    return prompt + text(kind, MARGIN_PX + 2 * WIDTH_PX, row.text[2:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", help="directory of isolet and the programs beside it")
    place = Place(find_programs(parser.parse_args().programs))
    try:
        place.start()
        recorder = Recorder(place)
        for line in LINES:
            recorder.type(line)
        recorder.close()
    finally:
        place.remove()
    (HERE / "first-session.cast").write_text(cast(recorder.events))
    (HERE / "first-session.svg").write_text(svg(rows(recorder.events)))


if __name__ == "__main__":
    main()
