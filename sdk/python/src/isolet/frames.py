"""A shell's WebSocket: what is said in frames, and what is known of a shell from them.

Knows nothing of connections. One connection after the other is used for the same shell; how far it
was read is kept here, so that no byte is missing or comes twice.
"""

from __future__ import annotations

import base64
import json
import struct
import threading
import uuid
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from .errors import IsoletError, RefusedError, ShellClosedError, UnreachableError
from .results import OUTPUT_BYTES, Collector, ExecResult, Output

#: The most standard input that goes with its command, in bytes; more follows in pieces.
WHOLE_INPUT_BYTES = 256 * 1024
#: The size of such a piece, in bytes.
INPUT_BYTES = 64 * 1024
#: What is kept of background jobs' output until somebody asks, in bytes.
BACKGROUND_BYTES = 1024 * 1024

_HEAD = struct.Struct("!BQH")
_STREAMS = {1: "stdout", 2: "stderr"}
# Ends with what the command before it has ended with, so that nothing in the shell changes.
_FENCE = "(exit $?)"


class Pieces:
    """Output that nobody has asked for yet; the oldest goes first when it is too much."""

    def __init__(self, most: int) -> None:
        self._all: deque[Output] = deque()
        self._bytes = 0
        self._most = most

    def add(self, piece: Output) -> None:
        """One more."""
        self._all.append(piece)
        self._bytes += len(piece.data)
        dropped = 0
        while self._bytes > self._most and len(self._all) > 1:
            dropped += self._drop()
        if dropped:
            first = self._all[0]
            self._all[0] = Output(first.stream, first.text, first.data, first.offset, first.missed + dropped)

    def _drop(self) -> int:
        piece = self._all.popleft()
        self._bytes -= len(piece.data)
        return len(piece.data) + piece.missed

    @property
    def empty(self) -> bool:
        """There is none."""
        return not self._all

    def next(self) -> Output | None:
        """The oldest; ``None`` when there is none."""
        if not self._all:
            return None
        piece = self._all.popleft()
        self._bytes -= len(piece.data)
        return piece


class Run:
    """A command that was sent, or is about to be."""

    def __init__(self, command_id: str, frame: Mapping[str, Any], most: int = OUTPUT_BYTES) -> None:
        self.id = command_id
        self.frame = dict(frame)
        self.said = Collector(str(frame.get("command", "")), most)
        self.unread = Pieces(most)
        self.result: ExecResult | None = None
        self.error: IsoletError | None = None
        #: It went out on some connection; whether it arrived is another matter.
        self.sent = False
        #: The shell has it: it said something, or a later one did.
        self.heard = False
        #: Input went out that may have been on its way when the connection broke.
        self.fed = False
        #: Whether it arrived before a connection broke is not known.
        self.doubtful = False
        #: Signals, cancels and input that went out: each may be refused without its command's end.
        self.urged = 0

    @property
    def over(self) -> bool:
        """Nothing more comes."""
        return self.result is not None or self.error is not None

    def fail(self, error: IsoletError) -> None:
        """It will not be known how it ends."""
        if not self.over:
            self.error = error


class ShellState:
    """One shell: its name, how far it was read, and its commands. Threads may share it."""

    def __init__(self, session: str | None = None) -> None:
        self.session = session
        #: What names this shell and its client for a return; ``None`` before the first connection.
        self.name: str | None = None
        #: Why no further command can run.
        self.closed: ShellClosedError | None = None
        #: What was told of the last shell that ended here.
        self.ended: Mapping[str, Any] | None = None
        self.background = Pieces(BACKGROUND_BYTES)
        self._at = [0, 0]
        self._seq = 0
        self._runs: dict[str, Run] = {}
        self._lock = threading.RLock()
        # While there is one, commands are held back: see `returned`.
        self._fence: str | None = None
        self._fence_over = False

    @property
    def position(self) -> tuple[int, int, int]:
        """Bytes of standard output and error that were read, and the last exit."""
        return self._at[0], self._at[1], self._seq

    def begin(self, name: str | None, position: tuple[int, int, int]) -> None:
        """Takes up a shell that was left, or one that is new."""
        self.name = name
        self._at, self._seq = [position[0], position[1]], position[2]

    def start(self, run: Run) -> list[str]:
        """Frames that run it. They go out later when it is not known what the shell has."""
        with self._lock:
            if self.closed:
                raise self.closed
            self._runs[run.id] = run
            if self._fence is not None:
                return []
            run.sent = True
            return [json.dumps(run.frame)]

    def known(self, run: Run) -> None:
        """A command that an earlier client of this name has sent."""
        with self._lock:
            run.sent = run.heard = True
            self._runs[run.id] = run

    def returned(self) -> list[str]:
        """Frames for a connection that takes the place of one that broke.

        A command that went out as the connection broke has arrived or not. Commands run in order:
        one that changes nothing is sent behind them, and what has not ended when that ends has never
        arrived, and is sent again. So nothing runs twice, and nothing is left out.
        """
        with self._lock:
            frames = [self._give_up(run) for run in list(self._runs.values()) if run.fed]
            for run in self._runs.values():
                run.doubtful = run.sent and not run.heard
            if self._fence is None and not any(run.doubtful for run in self._runs.values()):
                return frames
            self._fence, self._fence_over = f"fence-{uuid.uuid4().hex[:20]}", False
            fence = {"type": "shell_run", "id": self._fence, "command": _FENCE, "timeout_ms": 0}
            return [*frames, json.dumps(fence)]

    def _give_up(self, run: Run) -> str:
        # How much of its input arrived cannot be known: it is not to work on half of it.
        text = f"the connection broke while command {run.id} was given its input: it is cancelled"
        self._fail([run], UnreachableError(text, code="cut"))
        return message("shell_cancel", id=run.id)

    def rest(self) -> list[str]:
        """After each message, until there is nothing: commands that were held back, or have not arrived."""
        with self._lock:
            if not self._fence_over:
                return []
            rest = [run for run in self._runs.values() if run.doubtful or not run.sent]
            if not rest:
                self._fence, self._fence_over = None, False
            for run in rest:
                run.sent, run.doubtful = True, False
            return [json.dumps(run.frame) for run in rest]

    def take(self, text: str | bytes) -> None:
        """One message of the server."""
        with self._lock:
            if isinstance(text, bytes):
                self._output(text)
                return
            told = json.loads(text)
            kind = told.get("type")
            if kind == "shell_exit":
                self._exit(told)
            elif kind == "shell_gap":
                self._gap(told)
            elif kind == "shell_error":
                self._refused(told)
            elif kind == "shell_closed":
                self._ended(told)

    def _output(self, frame: bytes) -> None:
        stream, offset, length = _HEAD.unpack_from(frame)
        begin = _HEAD.size + length
        command, data = frame[_HEAD.size : begin].decode(), frame[begin:]
        self._at[stream - 1] = max(self._at[stream - 1], offset + len(data))
        name = _STREAMS[stream]
        run = self._runs.get(command)
        if run is not None:
            self._hear(run)
            run.unread.add(run.said.take(name, offset, data))
        else:
            self.background.add(Output(name, data.decode(errors="replace"), data, offset))

    def _hear(self, run: Run) -> None:
        # What was sent before it has arrived before it.
        for other in self._runs.values():
            other.heard, other.doubtful = True, False
            if other is run:
                return

    def _gap(self, told: Mapping[str, Any]) -> None:
        name, start, end = told["stream"], told["from"], told["to"]
        stream = 0 if name == "stdout" else 1
        self._at[stream] = max(self._at[stream], end)
        run = next(iter(self._runs.values()), None)
        if run is not None and run.heard:
            run.unread.add(run.said.miss(name, start, end))
        else:
            self.background.add(Output(name, "", b"", end, end - start))

    def _exit(self, told: Mapping[str, Any]) -> None:
        self._seq = max(self._seq, told["seq"])
        if told["id"] == self._fence:
            self._fence_over = True
            return
        run = self._runs.get(told["id"])
        if run is None:
            return
        self._hear(run)
        for piece in run.said.rest():
            run.unread.add(piece)
        run.result = run.said.result({"session": self.session, **told})
        del self._runs[run.id]

    def _refused(self, told: Mapping[str, Any]) -> None:
        error = RefusedError(told.get("message", ""), code=told["error"], hint=told.get("hint", ""))
        command = told.get("id")
        run = self._runs.get(command) if isinstance(command, str) else None
        if command is None:
            # A frame that was not understood: it can only have been one that ran something.
            self._fail([run for run in self._runs.values() if not run.heard], error)
        elif command == self._fence:
            # The shell takes nothing more: what has arrived cannot be told.
            self._fail([run for run in self._runs.values() if not run.heard], error)
            self._fence_over = True
        elif run is None or run.heard:
            return
        elif run.urged > 0 and error.code == "bad_request":
            # Of a signal, or of input: no end of its command.
            run.urged -= 1
        else:
            self._fail([run], error)

    def _ended(self, told: Mapping[str, Any]) -> None:
        self.ended = told
        if self.session is None:
            self.close(ShellClosedError(f"the shell has ended: {told['cause']}", code="shell_closed"))

    def close(self, error: ShellClosedError, of_runs: IsoletError | None = None) -> None:
        """No further command can run, and none that runs is heard to its end."""
        with self._lock:
            self.closed = self.closed or error
            self._fail(list(self._runs.values()), of_runs or error)

    def _fail(self, runs: Iterable[Run], error: IsoletError) -> None:
        for run in runs:
            run.fail(error)
            self._runs.pop(run.id, None)


def run_frame(
    command_id: str,
    command: str,
    *,
    cwd: str | None,
    env: Mapping[str, str | None] | None,
    timeout_ms: int | None,
    stdin: str | bool,
    merge: bool,
) -> dict[str, Any]:
    """The frame that runs a command."""
    frame: dict[str, Any] = {"type": "shell_run", "id": command_id, "command": command}
    for name, value in (("cwd", cwd), ("env", env), ("timeout_ms", timeout_ms)):
        if value is not None:
            frame[name] = value
    if stdin is not False:
        frame["stdin"] = stdin
    if merge:
        frame["merge"] = True
    return frame


def message(kind: str, **fields: str | int) -> str:
    """A frame about a command."""
    return json.dumps({"type": kind, **fields})


def input_frames(command_id: str, data: bytes, eof: bool) -> Iterable[str]:
    """Frames that are a command's standard input."""
    for at in range(0, len(data), INPUT_BYTES):
        part = base64.b64encode(data[at : at + INPUT_BYTES]).decode()
        yield json.dumps({"type": "shell_stdin", "id": command_id, "data_b64": part})
    if eof:
        yield json.dumps({"type": "shell_stdin", "id": command_id, "eof": True})
