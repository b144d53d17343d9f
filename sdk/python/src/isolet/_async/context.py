"""A code context: an interpreter with persistent variables and imports."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING

from .. import calls, transport
from ..calls import Call
from ..code import CodeEvent, ContextInfo, Execution, RunCollector, execution_from_json
from ..errors import NotFoundError, ServerError, UnreachableError
from ..values import Duration, Env
from .events import AsyncEventBody

if TYPE_CHECKING:
    from .client import AsyncConnection

#: Callback for each event of a run.
OnEvent = Callable[[CodeEvent], object]


class _RunResponse:
    """The response to a run, and the events received so far."""

    # Separate from the iterator that callers hold: see `commands._ExecResponse`.
    def __init__(self, connection: AsyncConnection, call: Call, code: str) -> None:
        self._connection = connection
        self._call = call
        self._collector = RunCollector(code)
        self.end: Execution | None = None
        self.body: AsyncEventBody | None = None

    async def open(self) -> None:
        """Send the code, once."""
        if self.body is None:
            response = await self._connection.open(self._call, read_s=transport.EVENTS_S)
            self.body = AsyncEventBody(self._connection.url, response)

    async def pieces(self) -> AsyncIterator[CodeEvent]:
        """Iterate over the events of the run."""
        await self.open()
        if self.body is None:
            return
        async for event in self.body.events():
            if event.name in ("stdout", "stderr", "result", "exception"):
                yield self._collector.take(event.name, event.data)
            elif event.name == "end":
                self.end = self._collector.end(event.data)
                return
            elif event.name == "error":
                details = event.data
                raise ServerError(
                    str(details.get("message", "")),
                    code=str(details.get("error")),
                    hint=str(details.get("hint", "")),
                )
        raise UnreachableError("the connection was lost before the run ended", code="cut")


class AsyncCodeStream:
    """Events of a running piece of code. Use it in ``async with``, and ``async for`` inside.

    Closing the stream early interrupts the run.
    """

    def __init__(self, connection: AsyncConnection, call: Call, code: str) -> None:
        self._response = _RunResponse(connection, call, code)
        self._pieces = self._response.pieces()

    async def open(self) -> AsyncCodeStream:
        """Send the code now instead of at the first iteration."""
        await self._response.open()
        return self

    def __aiter__(self) -> AsyncCodeStream:
        return self

    async def __anext__(self) -> CodeEvent:
        return await self._pieces.__anext__()

    async def result(self) -> Execution:
        """Read the remaining events and wait for the end of the run."""
        async for _ in self:
            pass
        if self._response.end is None:
            raise UnreachableError("the stream was closed before the run ended", code="cut")
        return self._response.end

    async def __aenter__(self) -> AsyncCodeStream:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the stream; interrupts the run if it is still going on."""
        if self._response.body is not None:
            await self._response.body.close()


class AsyncContext:
    """A code context of a sandbox."""

    def __init__(
        self,
        connection: AsyncConnection,
        sandbox: str,
        id: str,
        ready: Callable[[], Awaitable[None]],
    ) -> None:
        self._connection = connection
        self._ensure_created = ready
        self._path = calls.context_path(sandbox, id)
        #: Id, unique within the sandbox.
        self.id = id

    def __repr__(self) -> str:
        return f"{type(self).__name__}(id={self.id!r})"

    async def run(
        self,
        code: str,
        *,
        stdin: str | None = None,
        timeout: Duration | None = None,
        env: Env | None = None,
        on_event: OnEvent | None = None,
    ) -> Execution:
        """Run code to its end. Variables and imports persist for the next run.

        Args:
            code: source code, at most 1 MiB.
            stdin: standard input for functions such as ``input()``; without it they fail at once.
            timeout: seconds until the run is interrupted; the context's timeout by default.
            env: environment variables while the code runs; ``None`` unsets one.
            on_event: called for each output and result while the code runs.

        Returns:
            results and output. An exception in the code is returned in ``error``, not raised.

        Raises:
            NotFoundError: ``no_context``: it does not exist, or ended when the sandbox slept.
            TooManyRequestsError: ``queue_full``: 64 runs are waiting.

        Example:
            await context.run("x = 6 * 7")
            print((await context.run("x")).text)
        """
        await self._ensure_created()
        if on_event is None:
            call = calls.run_code(self._path, code, stdin=stdin, timeout=timeout, env=env, stream=False)
            return execution_from_json(code, await self._connection.json(call))
        async with await self.stream(code, stdin=stdin, timeout=timeout, env=env) as events:
            async for event in events:
                on_event(event)
            return await events.result()

    async def stream(
        self,
        code: str,
        *,
        stdin: str | None = None,
        timeout: Duration | None = None,
        env: Env | None = None,
    ) -> AsyncCodeStream:
        """Run code and stream its events.

        Takes ``code``, ``stdin``, ``timeout`` and ``env`` as :meth:`run` does.

        Returns:
            the events; closing it early interrupts the run.
        """
        await self._ensure_created()
        call = calls.run_code(self._path, code, stdin=stdin, timeout=timeout, env=env, stream=True)
        return await AsyncCodeStream(self._connection, call, code).open()

    async def info(self) -> ContextInfo:
        """Read the context's configuration and state.

        Raises:
            NotFoundError: ``no_context``.
        """
        return ContextInfo.from_json(
            await self._connection.json(calls.call("GET", self._path, repeatable=True))
        )

    async def interrupt(self) -> bool:
        """Interrupt the current run.

        Returns:
            whether code was running.
        """
        answer = await self._connection.json(calls.call("POST", f"{self._path}/interrupt"))
        return bool(answer["interrupted"])

    async def restart(self) -> ContextInfo:
        """Start a new interpreter; all variables are lost."""
        return ContextInfo.from_json(await self._connection.json(calls.call("POST", f"{self._path}/restart")))

    async def delete(self) -> None:
        """Delete the context and kill its processes. No error if it does not exist."""
        with suppress(NotFoundError):
            await self._connection.send(calls.call("DELETE", self._path, repeatable=True))
