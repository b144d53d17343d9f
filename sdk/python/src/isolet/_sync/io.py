"""I/O of the sync client. Its counterpart in ``_async`` is written by hand."""

from __future__ import annotations

import contextlib
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

#: Data that can be uploaded in chunks.
Source = IO[bytes] | Iterable[bytes]

Lock = threading.Lock
sleep = time.sleep


def http(timeout: float, context: ssl.SSLContext | None) -> httpx.Client:
    """Create an HTTP client."""
    options = transport.socket_options()
    return httpx.Client(
        transport=httpx.HTTPTransport(
            limits=transport.limits(),
            socket_options=options,
            trust_env=False,
            verify=context or ssl.create_default_context(),
        ),
        timeout=timeout,
        follow_redirects=False,
        trust_env=False,
    )


def pieces(source: Source, size: int) -> Iterator[bytes]:
    """Split an upload into chunks of at most ``size`` bytes."""
    if hasattr(source, "read"):
        while piece := source.read(size):
            yield piece
    else:
        yield from source


def write(file: IO[bytes], data: bytes) -> None:
    """Write to a local file."""
    file.write(data)


class Body:
    """A response body that another thread may close."""

    def __init__(self, response: httpx.Response) -> None:
        self._response = response
        self._pieces = response.iter_bytes()
        #: Held during a read. Reentrant, because a signal handler of the reading thread may close the body.
        self._reading = threading.RLock()
        #: ``close`` was called.
        self.closed = False

    def read(self) -> bytes | None:
        """Read the next piece; ``None`` at the end, and after ``close``.

        Raises:
            httpx.TransportError: the connection was lost.
        """
        with self._reading:
            if self.closed:
                return None
            try:
                return next(self._pieces, None)
            except (httpx.TransportError, httpx.StreamError):
                if self.closed:
                    return None
                raise

    def close(self) -> None:
        """Close the body. A read that is waiting in another thread returns ``None``."""
        self.closed = True
        if not self._reading.acquire(blocking=False):
            # Closing the socket would not wake the reader, and its descriptor could be used again before.
            stream = self._response.extensions.get("network_stream")
            connection = None if stream is None else stream.get_extra_info("socket")
            if connection is not None:
                # Not the method of an `SSLSocket`, which would change the state that the reader uses.
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(connection, socket.SHUT_RDWR)
            self._reading.acquire()
        try:
            self._response.close()
        finally:
            self._reading.release()


class Task:
    """A concurrent task."""

    def __init__(self, work: Callable[..., None], *args: Any) -> None:
        def run() -> None:
            try:
                work(*args)
            except IsoletError:
                # The caller sees the same failure elsewhere.
                return

        self._thread = threading.Thread(target=run, name="isolet", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait for the end of the task. Its error, if any, is dropped: the caller sees the same failure
        elsewhere.
        """
        self._thread.join()


class Socket:
    """A WebSocket connection."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        response = connection.response
        self.headers = {} if response is None else {k.lower(): v for k, v in response.headers.raw_items()}

    @classmethod
    def open(
        cls, url: str, headers: dict[str, str], timeout: float, context: ssl.SSLContext | None
    ) -> Socket:
        """Connect.

        Raises:
            RefusedError: the server refused the upgrade.
            UnreachableError: the server did not answer.
        """
        try:
            # Later versions of the library connect only in `__enter__`; `close` replaces `__exit__`.
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
            raise transport.upgrade_error(response.status_code, bytes(response.body)) from None
        except (OSError, TimeoutError, InvalidHandshake, EOFError) as error:
            raise UnreachableError(f"{url.partition('?')[0]} does not answer", code="unreachable") from error
        return cls(connection)

    def send(self, message: str | bytes) -> None:
        """Send a message; waits while the server does not read."""
        try:
            self._connection.send(message)
        except ConnectionClosed as error:
            raise _cut(error) from None

    def receive(self) -> str | bytes:
        """Receive the next message. After a long silence, a ping checks the connection."""
        try:
            while True:
                try:
                    return self._connection.recv(timeout=transport.SILENT_S)
                except TimeoutError:
                    if not self._connection.ping().wait(transport.ANSWER_S):
                        self.abort()
                        raise CutError(None, "the server did not answer a ping") from None
        except ConnectionClosed as error:
            raise _cut(error) from None

    def receive_within(self, seconds: float) -> str | bytes | None:
        """Receive the next message; ``None`` after ``seconds`` without one."""
        try:
            return self._connection.recv(timeout=seconds)
        except ConnectionClosed as error:
            raise _cut(error) from None
        except TimeoutError:
            return None

    @property
    def is_open(self) -> bool:
        """The connection is not known to be closed."""
        return self._connection.protocol.state is State.OPEN

    def close(self) -> None:
        """Close the connection with a close handshake."""
        self._connection.close()

    def abort(self) -> None:
        """Drop the connection without a close handshake."""
        try:
            self._connection.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            # Already disconnected.
            return


def _cut(error: ConnectionClosed) -> CutError:
    received = error.rcvd
    return CutError(received.code if received else None, received.reason if received else "")
