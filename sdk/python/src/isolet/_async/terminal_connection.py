"""Connection to a terminal that reconnects after a loss."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from .. import config, terminal_calls, transport
from ..errors import IsoletError, RefusedError, UnreachableError
from ..terminal_calls import Attach
from ..terminal_state import TerminalState
from ..transport import CutError
from . import io

if TYPE_CHECKING:
    from .client import AsyncConnection

#: Reconnect attempts after a lost connection; about a minute.
_RECONNECT_ATTEMPTS = 16


class AsyncTerminalConnection:
    """A sequence of WebSocket connections to one terminal."""

    def __init__(
        self,
        connection: AsyncConnection,
        sandbox: str,
        ready: Callable[[], Awaitable[None]],
        options: Attach,
        size: tuple[int, int],
        at: tuple[str, int | None] | None,
    ) -> None:
        self._connection = connection
        self._sandbox = sandbox
        self._ensure_created = ready
        self._options = options
        self._size = size
        self._state = TerminalState(at)
        self._socket: io.Socket | None = None
        # Number of messages processed, and the time of the latest.
        self._received = 0
        self._received_at = 0.0
        # Failed connection attempts since the last successful attach.
        self._failed = 0
        self._recorded = False
        # Only one caller reads or connects at a time.
        self._reading = io.Lock()
        self._connecting = io.Lock()

    async def open(self) -> AsyncTerminalConnection:
        """Connect if not connected, and wait until the initial screen is complete.

        Raises:
            TerminalClosedError: ``no_terminal``: the terminal to resume has ended.
            RefusedError: the server did not open the terminal.
        """
        while True:
            received = self._received
            if self._state.ready or self._state.exit is not None:
                return self
            await self._receive(received)

    async def _send_size(self) -> None:
        socket = self._socket
        if socket is None or self._options.mode == "view":
            return
        try:
            await socket.send(terminal_calls.resize(*self._size))
        except CutError:
            # The next connection reports the size when it attaches.
            return

    async def _receive(self, received: int, within: float | None = None) -> None:
        """Process the next message, on behalf of all callers that wait for one.

        Args:
            received: number of messages that the caller has seen. If more were processed since, the call
                returns at once.
            within: seconds to wait; without a limit by default.
        """
        async with self._reading:
            if self._received != received:
                return
            socket = await self._connected()
            try:
                message = await (socket.receive() if within is None else socket.receive_within(within))
                if message is None:
                    await self._check_alive(socket)
                    return
                self._state.take(message)
                self._received += 1
                self._received_at = time.monotonic()
                if self._state.ready:
                    self._failed = 0
            except CutError as cut:
                self._received += 1
                await self._lost(socket, cut)

    async def _check_alive(self, socket: io.Socket) -> None:
        """Ping a silent connection, and drop one that did not answer."""
        silent = time.monotonic() - self._received_at
        if silent > transport.SILENT_S:
            socket.abort()
        elif silent > transport.PING_S:
            await socket.send(terminal_calls.PING)

    async def _usable_socket(self) -> io.Socket:
        """Wait for a connection that accepts input."""
        while True:
            received = self._received
            await self.open()
            if self._state.closed is not None:
                raise self._state.closed
            socket = self._socket
            if socket is not None and socket.is_open:
                return socket
            # Read the remaining messages of the broken connection: the program may have exited.
            await self._receive(received)

    async def _connected(self) -> io.Socket:
        if self._state.closed is not None:
            raise self._state.closed
        async with self._connecting:
            if self._socket is None:
                await self._ensure_created()
                await self._connect()
            if self._socket is None:
                raise UnreachableError("the connection to the terminal was lost", code="cut")
            return self._socket

    async def _connect(self) -> None:
        state = self._state
        size = self._size
        options = self._options
        at = None
        if state.attached is not None:
            # If the program exited during the interruption, it must not be started a second time.
            options = replace(options, open=False, record=options.record and not self._recorded)
            at = None if state.offset is None else (state.attached.terminal, state.offset)
        self._socket = await self._connection.socket(terminal_calls.attach(self._sandbox, options, size, at))
        state.begin()
        self._received_at = time.monotonic()
        self._recorded = True
        if size != self._size:
            await self._send_size()

    async def _lost(self, socket: io.Socket, cut: CutError) -> None:
        """Reconnect, or record why that is impossible."""
        async with self._connecting:
            if self._socket is not socket or self._state.closed:
                return
            error = transport.terminal_closed_error(cut) or await self._reconnect()
            if error is not None:
                self._socket = None
                self._state.closed = self._state.closed or error

    async def _reconnect(self) -> IsoletError | None:
        last: Exception | None = None
        while self._failed < _RECONNECT_ATTEMPTS:
            if self._failed > 0:
                await io.sleep(config.retry_delay_s(self._failed - 1))
            self._failed += 1
            try:
                await self._connect()
                return None
            except UnreachableError as error:
                last = error
            except RefusedError as error:
                if error.status < 500 and error.status != 429:
                    return error
                last = error
        return UnreachableError(f"the connection to the terminal was lost: {last}", code="cut")
