"""I/O of the asyncio client. Its counterpart in ``_sync`` is written by hand."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from typing import IO, Any

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.protocol import State

from .. import transport
from ..errors import UnreachableError
from ..log import LOGGER
from ..transport import CutError

#: Data that can be uploaded in chunks.
Source = IO[bytes] | Iterable[bytes] | AsyncIterable[bytes]

Lock = asyncio.Lock
sleep = asyncio.sleep


def http(timeout: float, context: ssl.SSLContext | None) -> httpx.AsyncClient:
    """Create an HTTP client."""
    options = transport.socket_options()
    return httpx.AsyncClient(
        transport=httpx.AsyncHTTPTransport(
            limits=transport.limits(),
            socket_options=options,
            trust_env=False,
            verify=context or ssl.create_default_context(),
        ),
        timeout=timeout,
        follow_redirects=False,
        trust_env=False,
    )


async def pieces(source: Source, size: int) -> AsyncIterator[bytes]:
    """Split an upload into chunks of at most ``size`` bytes. Local files are read in a thread."""
    if isinstance(source, AsyncIterable):
        async for piece in source:
            yield piece
    elif hasattr(source, "read"):
        while piece := await asyncio.to_thread(source.read, size):
            yield piece
    else:
        for piece in source:
            yield piece


async def write(file: IO[bytes], data: bytes) -> None:
    """Write to a local file in a thread."""
    await asyncio.to_thread(file.write, data)


class Body:
    """A response body that another task may close."""

    def __init__(self, response: httpx.Response) -> None:
        self._response = response
        self._pieces = response.aiter_bytes()
        #: ``close`` was called.
        self.closed = False

    async def read(self) -> bytes | None:
        """Read the next piece; ``None`` at the end, and after ``close``.

        Raises:
            httpx.TransportError: the connection was lost.
        """
        if self.closed:
            return None
        try:
            return await anext(self._pieces, None)
        except (httpx.TransportError, httpx.StreamError):
            if self.closed:
                return None
            raise

    async def close(self) -> None:
        """Close the body. A read that is waiting in another task returns ``None``."""
        self.closed = True
        await self._response.aclose()


class Task:
    """A concurrent task."""

    def __init__(self, work: Callable[..., Awaitable[None]], *args: Any) -> None:
        async def run() -> None:
            await work(*args)

        self._task = asyncio.ensure_future(run())

    async def join(self) -> None:
        """Wait for the end of the task. Its error, if any, is dropped: the caller sees the same failure
        elsewhere.
        """
        await asyncio.wait([self._task])
        if not self._task.cancelled():
            self._task.exception()


class Socket:
    """A WebSocket connection."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        response = connection.response
        self.headers = {} if response is None else {k.lower(): v for k, v in response.headers.raw_items()}

    @classmethod
    async def open(
        cls, url: str, headers: dict[str, str], timeout: float, context: ssl.SSLContext | None
    ) -> Socket:
        """Connect.

        Raises:
            RefusedError: the server refused the upgrade.
            UnreachableError: the server did not answer.
        """
        try:
            connection = await connect(
                url,
                additional_headers=headers,
                compression=None,
                logger=LOGGER,
                max_size=transport.MESSAGE_BYTES_MAX,
                open_timeout=timeout,
                ping_interval=transport.PING_S,
                ping_timeout=None,
                proxy=None,
                ssl=context if url.startswith("wss:") else None,
            )
        except InvalidStatus as error:
            response = error.response
            raise transport.upgrade_error(response.status_code, bytes(response.body)) from None
        except (OSError, TimeoutError, asyncio.TimeoutError, InvalidHandshake, EOFError) as error:
            raise UnreachableError(f"{url.partition('?')[0]} does not answer", code="unreachable") from error
        return cls(connection)

    async def send(self, message: str | bytes) -> None:
        """Send a message; waits while the server does not read."""
        try:
            await self._connection.send(message)
        except ConnectionClosed as error:
            raise _cut(error) from None

    async def receive(self) -> str | bytes:
        """Receive the next message. After a long silence, a ping checks the connection."""
        try:
            while True:
                try:
                    return await asyncio.wait_for(self._connection.recv(), transport.SILENT_S)
                except asyncio.TimeoutError:
                    pong = await self._connection.ping()
                    await asyncio.wait_for(asyncio.shield(pong), transport.ANSWER_S)
        except ConnectionClosed as error:
            raise _cut(error) from None
        except asyncio.TimeoutError:
            self.abort()
            raise CutError(None, "the server did not answer a ping") from None

    async def receive_within(self, seconds: float) -> str | bytes | None:
        """Receive the next message; ``None`` after ``seconds`` without one."""
        try:
            return await asyncio.wait_for(self._connection.recv(), seconds)
        except ConnectionClosed as error:
            raise _cut(error) from None
        except asyncio.TimeoutError:
            return None

    @property
    def is_open(self) -> bool:
        """The connection is not known to be closed."""
        return self._connection.protocol.state is State.OPEN

    async def close(self) -> None:
        """Close the connection with a close handshake."""
        await self._connection.close()

    def abort(self) -> None:
        """Drop the connection without a close handshake."""
        self._connection.transport.abort()


def _cut(error: ConnectionClosed) -> CutError:
    received = error.rcvd
    return CutError(received.code if received else None, received.reason if received else "")
