"""What happens: to sandboxes, and in directories."""
# Made by tools/make_sync.py from its async twin: change that one.

from __future__ import annotations

from collections.abc import Iterator
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
    from .client import Connection


class EventBody:
    """The events of one answer."""

    def __init__(self, url: str, response: httpx.Response) -> None:
        self._url = url
        self._response = response

    def events(self) -> Iterator[ServerEvent]:
        """In order, up to the answer's end."""
        parser = Parser()
        try:
            for piece in self._response.iter_bytes():
                for event in parser.take(piece):
                    yield event
        except httpx.TransportError as error:
            raise transport.unreachable(self._url, error) from error
        finally:
            self._response.close()

    def close(self) -> None:
        """Ends the answer."""
        self._response.close()


class _Following:
    """Where the following of sandboxes stands."""

    # Apart from what is iterated: one that is left in the middle of a loop is then let go at once, and not
    # by the collector, which may come while a connection is being taken and would wait for that.
    def __init__(self, connection: Connection, path: str, after: int | None, last: str | None) -> None:
        self._connection = connection
        self._path = path
        self._last = last
        self._body: EventBody | None = None
        self.after = after

    def open(self) -> None:
        """Begins to listen, where it does not."""
        if self._body is None:
            call = calls.events(self._path, self.after)
            response = self._connection.open(call, read_s=transport.EVENTS_S)
            self._body = EventBody(self._connection.url, response)

    def close(self) -> None:
        """Ends it."""
        if self._body is not None:
            self._body.close()
            self._body = None

    def events(self) -> Iterator[SandboxEvent]:
        """All that happens, in order."""
        failed, blind = 0, False
        while True:
            try:
                self.open()
                if blind:
                    yield SandboxEvent(type="gap", id=None, at=None, sandbox=None)
                for event in self._once():
                    failed, blind = 0, False
                    yield event
                    if event.type == self._last:
                        self.close()
                        return
            except (UnreachableError, ServerError):
                if failed >= _TRIES:
                    raise
            self.close()
            # Before the first event nothing says from where to go on.
            blind = self.after is None
            io.sleep(config.wait_before(failed))
            failed += 1

    def _once(self) -> Iterator[SandboxEvent]:
        if self._body is None:
            return
        for event in self._body.events():
            if event.name == "error":
                if event.data.get("error") == "unauthorized":
                    raise UnauthorizedError(
                        str(event.data.get("message", "")), code="unauthorized", status=401
                    )
                return
            told = SandboxEvent.of(event.name, event.data)
            self.after = told.id if told.id is not None else self.after
            yield told


class Events:
    """What happens to sandboxes, as it happens. Use it in ``for``, and close it when you leave early.

    Raises:
        UnauthorizedError: the key opens nothing any more.
        UnreachableError: the server has not come back for a minute.
    """

    def __init__(self, connection: Connection, path: str, after: int | None, last: str | None) -> None:
        self._following = _Following(connection, path, after, last)
        self._events = self._following.events()

    @property
    def after(self) -> int | None:
        """The id of the last event: give it as ``after`` to go on behind it."""
        return self._following.after

    def open(self) -> Events:
        """Begins to listen now, rather than with the first event that is asked for."""
        self._following.open()
        return self

    def __iter__(self) -> Events:
        return self

    def __next__(self) -> SandboxEvent:
        return self._events.__next__()

    def __enter__(self) -> Events:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends it."""
        self._following.close()


#: Tries to come back, about a minute of them.
_TRIES = 16


class Watch:
    """What happens in a directory, from the moment it was made on: nothing is missed.

    Use it in ``with`` and ``for``; it ends after ``gone``. The sandbox stays awake meanwhile.

    Raises:
        UnreachableError: the connection broke; watch again, and look at what is there.
    """

    def __init__(self, body: EventBody) -> None:
        self._body = body
        self._events = body.events()
        #: How many directories are watched.
        self.directories = 0

    @classmethod
    def begin(cls, connection: Connection, call: Call) -> Watch:
        """Begins, and waits until it is in force."""
        response = connection.open(call, read_s=transport.EVENTS_S)
        watch = cls(EventBody(connection.url, response))
        for event in watch._events:
            if event.name == "watching":
                watch.directories = int(event.data.get("directories", 0))
                break
        return watch

    def __iter__(self) -> Watch:
        return self

    def __next__(self) -> FileEvent:
        event = self._events.__next__()
        if event.name == "error":
            self.close()
            said = event.data
            kind = NotFoundError if said.get("error") == "no_sandbox" else ConflictError
            raise kind(
                str(said.get("message", "")), code=str(said.get("error")), hint=str(said.get("hint", ""))
            )
        return FileEvent.of(event.name, event.data)

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends it."""
        self._body.close()
