"""Event streams: sandbox events and file changes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType
from typing import TYPE_CHECKING

import httpx

from .. import calls, config, transport
from ..calls import Call
from ..errors import ConflictError, NotFoundError, ServerError, UnauthorizedError, UnreachableError
from ..models import FileEvent, SandboxEvent
from ..sse import Parser, ServerEvent
from . import io

if TYPE_CHECKING:
    from .client import AsyncConnection


class AsyncEventBody:
    """A response body of server-sent events. Another task or thread may close it."""

    def __init__(self, url: str, response: httpx.Response) -> None:
        self._url = url
        self._body = io.Body(response)

    async def events(self) -> AsyncIterator[ServerEvent]:
        """Iterate over the events until the response ends or is closed."""
        parser = Parser()
        try:
            while (piece := await self._body.read()) is not None:
                for event in parser.take(piece):
                    if self._body.closed:
                        return
                    yield event
        except httpx.TransportError as error:
            raise transport.unreachable_error(self._url, error) from error
        finally:
            await self._body.close()

    @property
    def closed(self) -> bool:
        """The body was closed, or has ended."""
        return self._body.closed

    async def close(self) -> None:
        """Close the response."""
        await self._body.close()


class _Subscription:
    """A subscription to sandbox events: its connection and position."""

    # Separate from the iterator that callers hold: see `commands._ExecResponse`.
    def __init__(self, connection: AsyncConnection, path: str, after: int | None, last: str | None) -> None:
        self._connection = connection
        self._path = path
        self._last_type = last
        self._body: AsyncEventBody | None = None
        self._ended = False
        self.after = after

    async def open(self) -> None:
        """Connect if not connected."""
        if self._body is None:
            call = calls.events(self._path, self.after)
            response = await self._connection.open(call, read_s=transport.EVENTS_S)
            self._body = AsyncEventBody(self._connection.url, response)

    async def close(self) -> None:
        """Close the connection."""
        if self._body is not None:
            await self._body.close()
            self._body = None

    async def end(self) -> None:
        """Close the connection, and do not reconnect."""
        self._ended = True
        body = self._body
        if body is not None:
            await body.close()

    async def events(self) -> AsyncIterator[SandboxEvent]:
        """Iterate over the events; reconnects after a lost connection."""
        failed = 0
        may_have_missed = False
        while not self._ended:
            try:
                await self.open()
                if may_have_missed:
                    yield SandboxEvent(type="gap", id=None, at=None, sandbox=None)
                async for event in self._once():
                    failed = 0
                    may_have_missed = False
                    yield event
                    if event.type == self._last_type:
                        await self.close()
                        return
            except (UnreachableError, ServerError):
                if failed >= _RECONNECT_ATTEMPTS:
                    raise
            await self.close()
            if self._ended:
                return
            # Without a first event there is no id to continue from.
            may_have_missed = self.after is None
            await io.sleep(config.retry_delay_s(failed))
            failed += 1

    async def _once(self) -> AsyncIterator[SandboxEvent]:
        if self._body is None:
            return
        async for event in self._body.events():
            if event.name == "error":
                if event.data.get("error") == "unauthorized":
                    raise UnauthorizedError(
                        str(event.data.get("message", "")), code="unauthorized", status=401
                    )
                return
            sandbox_event = SandboxEvent.from_event(event.name, event.data)
            self.after = sandbox_event.id if sandbox_event.id is not None else self.after
            yield sandbox_event


class AsyncEvents:
    """Sandbox events as they happen. Use it in ``async for``, and close it if you stop early.

    Reconnects after a lost connection and continues after the last event. ``close`` may be called in another
    task or thread, which ends the iteration.

    Raises:
        UnauthorizedError: the key was revoked or has expired.
        UnreachableError: the server was unreachable for about a minute.

    Example:
        async with client.events() as events:
            async for event in events:
                print(event.type, event.sandbox)
    """

    def __init__(self, connection: AsyncConnection, path: str, after: int | None, last: str | None) -> None:
        self._subscription = _Subscription(connection, path, after, last)
        self._events = self._subscription.events()

    @property
    def after(self) -> int | None:
        """Id of the latest event. Pass it as ``after`` to continue later."""
        return self._subscription.after

    async def open(self) -> AsyncEvents:
        """Subscribe now instead of at the first iteration."""
        await self._subscription.open()
        return self

    def __aiter__(self) -> AsyncEvents:
        return self

    async def __anext__(self) -> SandboxEvent:
        return await self._events.__anext__()

    async def __aenter__(self) -> AsyncEvents:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End the subscription."""
        await self._subscription.end()


#: Reconnect attempts before an error; about a minute.
_RECONNECT_ATTEMPTS = 16


class AsyncWatch:
    """File changes in a directory, complete from the moment the watch was created.

    Use it in ``async with`` and ``async for``. The iteration ends after the event ``gone``, and when
    ``close`` is called, also in another task or thread. The sandbox does not sleep while it is watched.

    Raises:
        UnreachableError: the connection was lost. Watch again, and list the directory to find missed
            changes.
    """

    def __init__(self, body: AsyncEventBody) -> None:
        self._body = body
        self._events = body.events()
        #: Number of watched directories.
        self.directories = 0

    @classmethod
    async def begin(cls, connection: AsyncConnection, call: Call) -> AsyncWatch:
        """Start the watch, and wait until it is active."""
        response = await connection.open(call, read_s=transport.EVENTS_S)
        watch = cls(AsyncEventBody(connection.url, response))
        async for event in watch._events:
            if event.name == "watching":
                watch.directories = int(event.data.get("directories", 0))
                break
        return watch

    def __aiter__(self) -> AsyncWatch:
        return self

    async def __anext__(self) -> FileEvent:
        event = await self._events.__anext__()
        if event.name == "error":
            await self.close()
            details = event.data
            kind = NotFoundError if details.get("error") == "no_sandbox" else ConflictError
            raise kind(
                str(details.get("message", "")),
                code=str(details.get("error")),
                hint=str(details.get("hint", "")),
            )
        return FileEvent.from_event(event.name, event.data)

    async def __aenter__(self) -> AsyncWatch:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End the watch, and an iteration that is waiting for a change in another task or thread."""
        await self._body.close()
