"""Connections, locks and waiting, as threads have them. Its twin in ``_async`` is written by hand."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any

import httpx
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.protocol import State
from websockets.sync.client import ClientConnection, connect

from .. import transport
from ..errors import IsoletError, UnreachableError
from ..log import LOGGER
from ..transport import CutError

#: What can be uploaded piece by piece.
Source = IO[bytes] | Iterable[bytes]

Lock = threading.Lock
sleep = time.sleep


def http(timeout: float, context: ssl.SSLContext | None) -> httpx.Client:
    """A client with connections of its own."""
    options = transport.socket_options()
    return httpx.Client(
        transport=httpx.HTTPTransport(
            limits=transport.limits(),
            socket_options=options,
            trust_env=False,
            verify=True if context is None else context,
        ),
        timeout=timeout,
        follow_redirects=False,
        trust_env=False,
    )


def pieces(source: Source, size: int) -> Iterator[bytes]:
    """What is to be uploaded, at most ``size`` bytes of a file at once."""
    if hasattr(source, "read"):
        while piece := source.read(size):
            yield piece
    else:
        yield from source


def write(file: IO[bytes], data: bytes) -> None:
    """Writes to a local file."""
    file.write(data)


class Task:
    """Something that goes on beside its caller, who waits for its end."""

    def __init__(self, work: Callable[..., None], *args: Any) -> None:
        def run() -> None:
            try:
                work(*args)
            except IsoletError:
                # Its caller finds it in other ways.
                return

        self._thread = threading.Thread(target=run, name="isolet", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Waits for its end. What it failed with is its caller's to find in other ways."""
        self._thread.join()


class Socket:
    """One WebSocket."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        response = connection.response
        self.headers = {} if response is None else {k.lower(): v for k, v in response.headers.raw_items()}

    @classmethod
    def open(
        cls, url: str, headers: dict[str, str], timeout: float, context: ssl.SSLContext | None
    ) -> Socket:
        """Connects. Raises the refusal, or :class:`UnreachableError`."""
        try:
            # Entered, and left by `close`: later versions of the library connect no other way.
            connection = connect(
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
            ).__enter__()
        except InvalidStatus as error:
            response = error.response
            raise transport.upgrade_refused(response.status_code, bytes(response.body)) from None
        except (OSError, TimeoutError, InvalidHandshake, EOFError) as error:
            raise UnreachableError(f"{url.partition('?')[0]} does not answer", code="unreachable") from error
        return cls(connection)

    def send(self, message: str | bytes) -> None:
        """Sends a message; waits while the other side takes nothing."""
        try:
            self._connection.send(message)
        except ConnectionClosed as error:
            raise _cut(error) from None

    def receive(self) -> str | bytes:
        """The next message. A connection that is silent for long is asked whether it lives."""
        try:
            while True:
                try:
                    return self._connection.recv(timeout=transport.SILENT_S)
                except TimeoutError:
                    if not self._connection.ping().wait(transport.ANSWER_S):
                        self.abort()
                        raise CutError(None, "the connection is dead") from None
        except ConnectionClosed as error:
            raise _cut(error) from None

    def receive_within(self, seconds: float) -> str | bytes | None:
        """The next message; ``None`` when none comes in so many seconds."""
        try:
            return self._connection.recv(timeout=seconds)
        except ConnectionClosed as error:
            raise _cut(error) from None
        except TimeoutError:
            return None

    @property
    def stands(self) -> bool:
        """It is not known to be closed."""
        return self._connection.protocol.state is State.OPEN

    def close(self) -> None:
        """Says goodbye."""
        self._connection.close()

    def abort(self) -> None:
        """Lets go without a goodbye."""
        try:
            self._connection.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            # It has gone already.
            return


def _cut(error: ConnectionClosed) -> CutError:
    received = error.rcvd
    return CutError(received.code if received else None, received.reason if received else "")
