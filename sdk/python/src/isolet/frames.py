"""State of a shell, derived from WebSocket frames.

Independent of connections: several connections in a row may serve one shell. The state remembers the output
offsets, so that no byte is lost or repeated after a reconnect.
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

#: Standard input up to this size is sent with the command; more follows in pieces.
WHOLE_INPUT_BYTES = 256 * 1024
#: Size of such a piece.
INPUT_BYTES = 64 * 1024
#: Limit on unread output of background jobs; the oldest is dropped.
BACKGROUND_BYTES = 1024 * 1024

_HEAD = struct.Struct("!BQH")
_STREAMS = {1: "stdout", 2: "stderr"}
# Exits with the exit code of the previous command, so that `$?` does not change.
_FENCE = "(exit $?)"


class OutputQueue:
    """Unread output up to a size limit; the oldest pieces are dropped and counted."""

    def __init__(self, limit_bytes: int) -> None:
        self._all: deque[Output] = deque()
        self._bytes = 0
        self._limit_bytes = limit_bytes

    def add(self, piece: Output) -> None:
        """Append a piece of output."""
        self._all.append(piece)
        self._bytes += len(piece.data)
        dropped = 0
        while self._bytes > self._limit_bytes and len(self._all) > 1:
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
        """No output is unread."""
        return not self._all

    def next(self) -> Output | None:
        """Take the oldest piece; ``None`` if there is none."""
        if not self._all:
            return None
        piece = self._all.popleft()
        self._bytes -= len(piece.data)
        return piece


class Run:
    """A command that was sent or will be sent."""

    def __init__(self, command_id: str, frame: Mapping[str, Any], limit_bytes: int = OUTPUT_BYTES) -> None:
        self.id = command_id
        self.frame = dict(frame)
        self.collector = Collector(str(frame.get("command", "")), limit_bytes)
        self.unread = OutputQueue(limit_bytes)
        self.result: ExecResult | None = None
        self.error: IsoletError | None = None
        #: Sent on some connection, perhaps without arriving.
        self.sent = False
        #: Known to have arrived: this command or a later one produced output or ended.
        self.acknowledged = False
        #: Standard input was sent, and may be lost when the connection breaks.
        self.input_sent = False
        #: Unknown whether it arrived before the connection broke.
        self.unconfirmed = False
        #: Signals, cancels and input sent: the server may refuse each without ending the command.
        self.control_frames_sent = 0

    @property
    def finished(self) -> bool:
        """A result or an error is set."""
        return self.result is not None or self.error is not None

    def fail(self, error: IsoletError) -> None:
        """Set the error, unless the command has finished."""
        if not self.finished:
            self.error = error


class ShellState:
    """State of one shell: its name, output offsets and commands. Thread-safe."""

    def __init__(self, session: str | None = None) -> None:
        self.session = session
        #: Name to resume this shell with; ``None`` before the first connection.
        self.name: str | None = None
        #: Set once no further command can run.
        self.closed: ShellClosedError | None = None
        #: The latest ``shell_closed`` frame.
        self.ended: Mapping[str, Any] | None = None
        self.background = OutputQueue(BACKGROUND_BYTES)
        self._offsets = [0, 0]
        self._seq = 0
        self._runs: dict[str, Run] = {}
        self._lock = threading.RLock()
        # Id of the fence command. While it is set, new commands wait: see `resume_frames`.
        self._fence: str | None = None
        self._fence_over = False

    @property
    def position(self) -> tuple[int, int, int]:
        """Bytes read of standard output and standard error, and the number of the latest exit."""
        return self._offsets[0], self._offsets[1], self._seq

    def begin(self, name: str | None, position: tuple[int, int, int]) -> None:
        """Continue from a position, or begin a new shell."""
        self.name = name
        self._offsets, self._seq = [position[0], position[1]], position[2]

    def start(self, run: Run) -> list[str]:
        """Register a command.

        Returns:
            the frames to send now; empty while commands wait for the fence.
        """
        with self._lock:
            if self.closed:
                raise self.closed
            self._runs[run.id] = run
            if self._fence is not None:
                return []
            run.sent = True
            return [json.dumps(run.frame)]

    def adopt(self, run: Run) -> None:
        """Register a command that an earlier client of this shell sent."""
        with self._lock:
            run.sent = run.acknowledged = True
            self._runs[run.id] = run

    def resume_frames(self) -> list[str]:
        """Build the frames to send after a reconnect.

        A command that was sent just before the connection broke may or may not have arrived. Since commands
        run in order, the client sends a fence: a command without effect. Commands that have not ended when
        the fence ends never arrived, and are sent again. So no command runs twice and none is skipped.
        """
        with self._lock:
            frames = [self._cancel_run(run) for run in list(self._runs.values()) if run.input_sent]
            for run in self._runs.values():
                run.unconfirmed = run.sent and not run.acknowledged
            if self._fence is None and not any(run.unconfirmed for run in self._runs.values()):
                return frames
            self._fence, self._fence_over = f"fence-{uuid.uuid4().hex[:20]}", False
            fence = {"type": "shell_run", "id": self._fence, "command": _FENCE, "timeout_ms": 0}
            return [*frames, json.dumps(fence)]

    def _cancel_run(self, run: Run) -> str:
        # Unknown how much of the input arrived: the command must not continue with part of it.
        text = f"the connection broke while input for command {run.id} was sent; the command was cancelled"
        self._fail([run], UnreachableError(text, code="cut"))
        return message("shell_cancel", id=run.id)

    def deferred_frames(self) -> list[str]:
        """Commands to send after the fence: those that waited, and those that never arrived.

        Call it after each message until it returns an empty list.
        """
        with self._lock:
            if not self._fence_over:
                return []
            deferred = [run for run in self._runs.values() if run.unconfirmed or not run.sent]
            if not deferred:
                self._fence, self._fence_over = None, False
            for run in deferred:
                run.sent, run.unconfirmed = True, False
            return [json.dumps(run.frame) for run in deferred]

    def take(self, text: str | bytes) -> None:
        """Process one message of the server."""
        with self._lock:
            if isinstance(text, bytes):
                self._on_output(text)
                return
            message = json.loads(text)
            kind = message.get("type")
            if kind == "shell_exit":
                self._on_exit(message)
            elif kind == "shell_gap":
                self._on_gap(message)
            elif kind == "shell_error":
                self._on_error(message)
            elif kind == "shell_closed":
                self._on_closed(message)

    def _on_output(self, frame: bytes) -> None:
        stream, offset, length = _HEAD.unpack_from(frame)
        begin = _HEAD.size + length
        command, data = frame[_HEAD.size : begin].decode(), frame[begin:]
        self._offsets[stream - 1] = max(self._offsets[stream - 1], offset + len(data))
        name = _STREAMS[stream]
        run = self._runs.get(command)
        if run is not None:
            self._acknowledge(run)
            run.unread.add(run.collector.take(name, offset, data))
        else:
            self.background.add(Output(name, data.decode(errors="replace"), data, offset))

    def _acknowledge(self, run: Run) -> None:
        # Messages arrive in order: earlier commands have arrived too.
        for other in self._runs.values():
            other.acknowledged, other.unconfirmed = True, False
            if other is run:
                return

    def _on_gap(self, message: Mapping[str, Any]) -> None:
        name, start, end = message["stream"], message["from"], message["to"]
        stream = 0 if name == "stdout" else 1
        self._offsets[stream] = max(self._offsets[stream], end)
        run = next(iter(self._runs.values()), None)
        if run is not None and run.acknowledged:
            run.unread.add(run.collector.miss(name, start, end))
        else:
            self.background.add(Output(name, "", b"", end, end - start))

    def _on_exit(self, message: Mapping[str, Any]) -> None:
        self._seq = max(self._seq, message["seq"])
        if message["id"] == self._fence:
            self._fence_over = True
            return
        run = self._runs.get(message["id"])
        if run is None:
            return
        self._acknowledge(run)
        for piece in run.collector.flush():
            run.unread.add(piece)
        run.result = run.collector.result({"session": self.session, **message})
        del self._runs[run.id]

    def _on_error(self, message: Mapping[str, Any]) -> None:
        error = RefusedError(message.get("message", ""), code=message["error"], hint=message.get("hint", ""))
        command = message.get("id")
        run = self._runs.get(command) if isinstance(command, str) else None
        if command is None:
            # The server could not parse a frame. Only frames that run commands can be affected.
            self._fail([run for run in self._runs.values() if not run.acknowledged], error)
        elif command == self._fence:
            # The shell accepts no more commands: unknown which have arrived.
            self._fail([run for run in self._runs.values() if not run.acknowledged], error)
            self._fence_over = True
        elif run is None or run.acknowledged:
            return
        elif run.control_frames_sent > 0 and error.code == "bad_request":
            # Refers to a signal or to input, not to the command itself.
            run.control_frames_sent -= 1
        else:
            self._fail([run], error)

    def _on_closed(self, message: Mapping[str, Any]) -> None:
        self.ended = message
        if self.session is None:
            self.close(ShellClosedError(f"the shell has exited: {message['cause']}", code="shell_closed"))

    def close(self, error: ShellClosedError, run_error: IsoletError | None = None) -> None:
        """Mark the shell as closed and fail its commands.

        Args:
            error: raised for new commands.
            run_error: set on running commands; ``error`` by default.
        """
        with self._lock:
            self.closed = self.closed or error
            self._fail(list(self._runs.values()), run_error or error)

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
    """Build the frame that runs a command."""
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
    """Build a frame about a running command."""
    return json.dumps({"type": kind, **fields})


def input_frames(command_id: str, data: bytes, eof: bool) -> Iterable[str]:
    """Split standard input into frames."""
    for at in range(0, len(data), INPUT_BYTES):
        part = base64.b64encode(data[at : at + INPUT_BYTES]).decode()
        yield json.dumps({"type": "shell_stdin", "id": command_id, "data_b64": part})
    if eof:
        yield json.dumps({"type": "shell_stdin", "id": command_id, "eof": True})
