"""A code context: an interpreter that keeps its variables and imports."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING

from .. import calls, transport
from ..calls import Call
from ..code import CodeEvent, ContextInfo, Execution, Gathered, answered
from ..errors import NotFoundError, ServerError, UnreachableError
from ..values import Duration
from .events import AsyncEventBody

if TYPE_CHECKING:
    from .client import AsyncConnection

#: Hears what happens in a run.
OnEvent = Callable[[CodeEvent], object]


class _Running:
    """A run's answer, and what came of it so far."""

    # Apart from what is iterated: one that is left in the middle of a loop is then let go at once, and not
    # by the collector, which may come while a connection is being taken and would wait for that.
    def __init__(self, connection: AsyncConnection, call: Call, code: str) -> None:
        self._connection = connection
        self._call = call
        self._said = Gathered(code)
        self.end: Execution | None = None
        self.body: AsyncEventBody | None = None

    async def open(self) -> None:
        """Sends the code, once."""
        if self.body is None:
            response = await self._connection.open(self._call, read_s=transport.EVENTS_S)
            self.body = AsyncEventBody(self._connection.url, response)

    async def pieces(self) -> AsyncIterator[CodeEvent]:
        """All that happens, in order."""
        await self.open()
        if self.body is None:
            return
        async for event in self.body.events():
            if event.name in ("stdout", "stderr", "result", "exception"):
                yield self._said.take(event.name, event.data)
            elif event.name == "end":
                self.end = self._said.end(event.data)
                return
            elif event.name == "error":
                said = event.data
                raise ServerError(
                    str(said.get("message", "")), code=str(said.get("error")), hint=str(said.get("hint", ""))
                )
        raise UnreachableError("the connection ended before the run", code="cut")


class AsyncCodeStream:
    """What happens in a run, as it happens. Use it in ``async with``, and ``async for`` inside.

    Left early, it interrupts the run.
    """

    def __init__(self, connection: AsyncConnection, call: Call, code: str) -> None:
        self._running = _Running(connection, call, code)
        self._pieces = self._running.pieces()

    async def open(self) -> AsyncCodeStream:
        """Sends the code now, rather than with the first event that is asked for."""
        await self._running.open()
        return self

    def __aiter__(self) -> AsyncCodeStream:
        return self

    async def __anext__(self) -> CodeEvent:
        return await self._pieces.__anext__()

    async def result(self) -> Execution:
        """All of the run; reads what is left."""
        async for _ in self:
            pass
        if self._running.end is None:
            raise UnreachableError("the stream was left before the run's end", code="cut")
        return self._running.end

    async def __aenter__(self) -> AsyncCodeStream:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends it, and interrupts the run where that still goes on."""
        if self._running.body is not None:
            await self._running.body.close()


class AsyncContext:
    """A code context of a sandbox, by its id."""

    def __init__(
        self,
        connection: AsyncConnection,
        sandbox: str,
        id: str,
        ready: Callable[[], Awaitable[None]],
    ) -> None:
        self._connection = connection
        self._ready = ready
        self._path = calls.context_path(sandbox, id)
        #: Unique within the sandbox.
        self.id = id

    def __repr__(self) -> str:
        return f"{type(self).__name__}(id={self.id!r})"

    async def run(
        self,
        code: str,
        *,
        stdin: str | None = None,
        timeout: Duration | None = None,
        on_event: OnEvent | None = None,
    ) -> Execution:
        """Runs code to its end; variables and imports stay for the next.

        Args:
            code: at most 1 MiB.
            stdin: what ``input()`` and the like read; without it they fail at once.
            timeout: seconds until it is interrupted; the context's own unless told.
            on_event: hears output and results as they come.

        Raises:
            NotFoundError: ``no_context``: there is none, or a sleep has ended it.
            TooManyRequestsError: ``queue_full``: 64 runs wait.
        """
        await self._ready()
        if on_event is None:
            call = calls.run_code(self._path, code, stdin=stdin, timeout=timeout, stream=False)
            return answered(code, await self._connection.json(call))
        async with await self.stream(code, stdin=stdin, timeout=timeout) as events:
            async for event in events:
                on_event(event)
            return await events.result()

    async def stream(
        self, code: str, *, stdin: str | None = None, timeout: Duration | None = None
    ) -> AsyncCodeStream:
        """Runs code, and gives what happens as it happens."""
        await self._ready()
        call = calls.run_code(self._path, code, stdin=stdin, timeout=timeout, stream=True)
        return await AsyncCodeStream(self._connection, call, code).open()

    async def info(self) -> ContextInfo:
        """What is known of it.

        Raises:
            NotFoundError: ``no_context``.
        """
        return ContextInfo.of(await self._connection.json(calls.call("GET", self._path, again=True)))

    async def interrupt(self) -> bool:
        """Interrupts what runs in it; whether anything did."""
        told = await self._connection.json(calls.call("POST", f"{self._path}/interrupt"))
        return bool(told["interrupted"])

    async def restart(self) -> ContextInfo:
        """Begins with a new interpreter: what the old one held is lost."""
        return ContextInfo.of(await self._connection.json(calls.call("POST", f"{self._path}/restart")))

    async def delete(self) -> None:
        """Ends it and all that it started. No error where there is none."""
        with suppress(NotFoundError):
            await self._connection.send(calls.call("DELETE", self._path, again=True))
