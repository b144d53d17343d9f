"""Commands over HTTP, in a session's shell or as separate processes."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from .. import calls, transport
from ..calls import Call
from ..errors import ServerError, UnreachableError, UsageError
from ..results import OUTPUT_BYTES, Collector, ExecResult, Output, result_from_json
from ..values import AnyPath, Duration, Env
from .events import AsyncEventBody

if TYPE_CHECKING:
    from .client import AsyncConnection

#: Callback for each piece of output.
OnOutput = Callable[[Output], object]


class _ExecResponse:
    """The response to a command, and the output received so far."""

    # Separate from the iterator that callers hold: an iterator abandoned in the middle of a loop is then
    # freed at once by its reference count. The garbage collector could run inside the connection pool's
    # lock, and closing the response there would deadlock.
    def __init__(self, connection: AsyncConnection, call: Call, command: str, limit_bytes: int) -> None:
        self._connection = connection
        self._call = call
        self._collector = Collector(command, limit_bytes)
        self.result: ExecResult | None = None
        self.body: AsyncEventBody | None = None

    async def open(self) -> None:
        """Send the command, once."""
        if self.body is None:
            response = await self._connection.open(self._call, read_s=transport.EVENTS_S)
            self.body = AsyncEventBody(self._connection.url, response)

    async def pieces(self) -> AsyncIterator[Output]:
        """Iterate over the output."""
        await self.open()
        if self.body is None:
            return
        async for event in self.body.events():
            if event.name in ("stdout", "stderr"):
                data = base64.b64decode(event.data["data_b64"])
                yield self._collector.take(event.name, event.data["offset"], data)
            elif event.name == "gap":
                yield self._collector.miss(event.data["stream"], event.data["from"], event.data["to"])
            elif event.name == "exit":
                for piece in self._collector.flush():
                    yield piece
                self.result = self._collector.result(event.data)
                return
            elif event.name == "error":
                details = event.data
                raise ServerError(
                    str(details.get("message", "")),
                    code=str(details.get("error")),
                    hint=str(details.get("hint", "")),
                )
        raise UnreachableError("the connection was lost before the command ended", code="cut")


class AsyncExecStream:
    """Output of a running command. Use it in ``async with``, and ``async for`` inside.

    Closing the stream early cancels the command, unless it was started with ``keep_running``. Unread output
    stays at the server, and the command blocks for up to 60 s until it is read.

    Raises:
        UnreachableError: ``cut``: the connection was lost; the command may have run.
    """

    def __init__(self, connection: AsyncConnection, call: Call, command: str, limit_bytes: int) -> None:
        self._response = _ExecResponse(connection, call, command, limit_bytes)
        self._pieces = self._response.pieces()

    async def open(self) -> AsyncExecStream:
        """Send the command now instead of at the first iteration."""
        await self._response.open()
        return self

    def __aiter__(self) -> AsyncExecStream:
        return self

    async def __anext__(self) -> Output:
        return await self._pieces.__anext__()

    async def result(self) -> ExecResult:
        """Read the remaining output and wait for the end of the command.

        Returns:
            exit status and all collected output.
        """
        async for _ in self:
            pass
        if self._response.result is None:
            raise UnreachableError("the stream was closed before the command ended", code="cut")
        return self._response.result

    async def __aenter__(self) -> AsyncExecStream:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the stream; cancels the command if it is still running."""
        if self._response.body is not None:
            await self._response.body.close()


def stream(
    connection: AsyncConnection, call: Call, command: str | Sequence[str], limit_bytes: int | None
) -> AsyncExecStream:
    """Create the output stream of a command."""
    text = command if isinstance(command, str) else " ".join(command)
    return AsyncExecStream(connection, call, text, OUTPUT_BYTES if limit_bytes is None else limit_bytes)


async def run(
    connection: AsyncConnection,
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
    """Run a command to its end."""
    if in_shell and not isinstance(command, str):
        raise UsageError(
            "a shell command must be a string; use run_program for a program with arguments",
            code="bad_command",
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
        return result_from_json(text, await connection.json(call))
    async with stream(connection, call, command, max_output_bytes) as pieces:
        async for piece in pieces:
            on_output(piece)
        return await pieces.result()
