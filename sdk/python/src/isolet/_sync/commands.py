"""Commands by HTTP: one after the other in a session's shell, or each by itself."""
# Made by tools/make_sync.py from its async twin: change that one.

from __future__ import annotations

import base64
from collections.abc import Iterator, Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from .. import calls, transport
from ..calls import Call
from ..errors import ServerError, UnreachableError, UsageError
from ..results import OUTPUT_BYTES, Collector, ExecResult, Output, answered
from ..values import AnyPath, Duration, Env
from .events import EventBody

if TYPE_CHECKING:
    from .client import Connection

#: Hears each piece of output.
OnOutput = Callable[[Output], object]


class _Running:
    """A command's answer, and what came of it so far."""

    # Apart from what is iterated: one that is left in the middle of a loop is then let go at once, and not
    # by the collector, which may come while a connection is being taken and would wait for that.
    def __init__(self, connection: Connection, call: Call, command: str, most: int) -> None:
        self._connection = connection
        self._call = call
        self._said = Collector(command, most)
        self.result: ExecResult | None = None
        self.body: EventBody | None = None

    def open(self) -> None:
        """Sends the command, once."""
        if self.body is None:
            response = self._connection.open(self._call, read_s=transport.EVENTS_S)
            self.body = EventBody(self._connection.url, response)

    def pieces(self) -> Iterator[Output]:
        """All that it says, in order."""
        self.open()
        if self.body is None:
            return
        for event in self.body.events():
            if event.name in ("stdout", "stderr"):
                data = base64.b64decode(event.data["data_b64"])
                yield self._said.take(event.name, event.data["offset"], data)
            elif event.name == "gap":
                yield self._said.miss(event.data["stream"], event.data["from"], event.data["to"])
            elif event.name == "exit":
                for piece in self._said.rest():
                    yield piece
                self.result = self._said.result(event.data)
                return
            elif event.name == "error":
                said = event.data
                raise ServerError(
                    str(said.get("message", "")), code=str(said.get("error")), hint=str(said.get("hint", ""))
                )
        raise UnreachableError("the connection ended before the command", code="cut")


class ExecStream:
    """A command's output as it is written. Use it in ``with``, and ``for`` inside.

    Left early, it ends the command, unless that was told to keep running. Bytes that nobody reads stay
    with the server: the command waits for its reader for 60 s.
    """

    def __init__(self, connection: Connection, call: Call, command: str, most: int) -> None:
        self._running = _Running(connection, call, command, most)
        self._pieces = self._running.pieces()

    def open(self) -> ExecStream:
        """Sends the command now, rather than with the first piece that is asked for."""
        self._running.open()
        return self

    def __iter__(self) -> ExecStream:
        return self

    def __next__(self) -> Output:
        return self._pieces.__next__()

    def result(self) -> ExecResult:
        """How it ended, with all that it said; reads what is left."""
        for _ in self:
            pass
        if self._running.result is None:
            raise UnreachableError("the stream was left before the command's end", code="cut")
        return self._running.result

    def __enter__(self) -> ExecStream:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends it, and the command where that still runs."""
        if self._running.body is not None:
            self._running.body.close()


def stream(
    connection: Connection, call: Call, command: str | Sequence[str], most: int | None
) -> ExecStream:
    """A command's output as it is written."""
    text = command if isinstance(command, str) else " ".join(command)
    return ExecStream(connection, call, text, OUTPUT_BYTES if most is None else most)


def run(
    connection: Connection,
    path: str,
    command: str | Sequence[str],
    *,
    on_output: OnOutput | None,
    session: str | None,
    in_shell: bool,
    cwd: AnyPath | None,
    env: Env | None,
    stdin: str | bytes | None,
    timeout: Duration | None,
    max_output_bytes: int | None,
    merge: bool,
    keep_running: bool,
) -> ExecResult:
    """Runs a command to its end."""
    if in_shell and not isinstance(command, str):
        raise UsageError(
            "a shell's command is text; programs with arguments go by run_program", code="bad_command"
        )
    call = calls.exec_call(
        path,
        command,
        session=session,
        cwd=cwd,
        env=env,
        stdin=stdin,
        timeout=timeout,
        max_output_bytes=max_output_bytes,
        merge=merge,
        keep_running=keep_running,
        in_shell=in_shell,
        stream=on_output is not None,
    )
    if on_output is None:
        text = command if isinstance(command, str) else " ".join(command)
        return answered(text, connection.json(call))
    with stream(connection, call, command, max_output_bytes) as pieces:
        for piece in pieces:
            on_output(piece)
        return pieces.result()
