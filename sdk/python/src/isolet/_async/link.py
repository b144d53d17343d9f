"""A terminal's connection, which comes back by itself."""

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

#: Tries to come back after a lost connection: about a minute of them.
_TRIES = 16


class AsyncTerminalLink:
    """What goes over one connection after the other to one terminal."""

    def __init__(
        self,
        connection: AsyncConnection,
        sandbox: str,
        ready: Callable[[], Awaitable[None]],
        how: Attach,
        size: tuple[int, int],
        at: tuple[str, int | None] | None,
    ) -> None:
        self._connection = connection
        self._sandbox = sandbox
        self._sandbox_ready = ready
        self._how = how
        self._size = size
        self._state = TerminalState(at)
        self._socket: io.Socket | None = None
        # Messages that were taken in, and when the last one was.
        self._heard = 0
        self._heard_at = 0.0
        # Tries to connect since one has led to a terminal.
        self._failed = 0
        self._recorded = False
        # One reads what comes; one connects.
        self._reading = io.Lock()
        self._connecting = io.Lock()

    async def open(self) -> AsyncTerminalLink:
        """Connects, where it is not connected, and reads until what stood is drawn.

        Raises:
            TerminalClosedError: ``no_terminal``: what was to be resumed has ended.
            RefusedError: it was not opened.
        """
        while True:
            heard = self._heard
            if self._state.ready or self._state.exit is not None:
                return self
            await self._hear(heard)

    async def _tell_size(self) -> None:
        socket = self._socket
        if socket is None or self._how.mode == "view":
            return
        try:
            await socket.send(terminal_calls.resize(*self._size))
        except CutError:
            # The next connection begins with it.
            return

    async def _hear(self, heard: int, within: float | None = None) -> None:
        """Takes in the next message, whoever waits for it, where one comes in so many seconds.

        Args:
            heard: messages that the caller knew of: where there are more by now, it is to look at them.
            within: seconds; without an end unless told.
        """
        async with self._reading:
            if self._heard != heard:
                return
            socket = await self._connected()
            try:
                message = await (socket.receive() if within is None else socket.receive_within(within))
                if message is None:
                    await self._doubt(socket)
                    return
                self._state.take(message)
                self._heard += 1
                self._heard_at = time.monotonic()
                if self._state.ready:
                    self._failed = 0
            except CutError as cut:
                self._heard += 1
                await self._lost(socket, cut)

    async def _doubt(self, socket: io.Socket) -> None:
        """Nothing came: asks whether anybody is there, and lets go of who did not answer."""
        silent = time.monotonic() - self._heard_at
        if silent > transport.SILENT_S:
            socket.abort()
        elif silent > transport.PING_S:
            await socket.send(terminal_calls.PING)

    async def _standing(self) -> io.Socket:
        """A connection on which can be typed."""
        while True:
            heard = self._heard
            await self.open()
            if self._state.closed is not None:
                raise self._state.closed
            socket = self._socket
            if socket is not None and socket.stands:
                return socket
            # What it still said before it broke is read first: it may have been the end.
            await self._hear(heard)

    async def _connected(self) -> io.Socket:
        if self._state.closed is not None:
            raise self._state.closed
        async with self._connecting:
            if self._socket is None:
                await self._sandbox_ready()
                await self._connect()
            if self._socket is None:
                raise UnreachableError("the connection to the terminal was lost", code="cut")
            return self._socket

    async def _connect(self) -> None:
        state, size, how = self._state, self._size, self._how
        at = None
        if state.attached is not None:
            # What runs there is not to be run again because its end was missed.
            how = replace(how, open=False, record=how.record and not self._recorded)
            at = None if state.offset is None else (state.attached.terminal, state.offset)
        self._socket = await self._connection.socket(terminal_calls.attach(self._sandbox, how, size, at))
        state.begin()
        self._heard_at = time.monotonic()
        self._recorded = True
        if size != self._size:
            await self._tell_size()

    async def _lost(self, socket: io.Socket, cut: CutError) -> None:
        """Comes back after a broken connection, or says why not."""
        async with self._connecting:
            if self._socket is not socket or self._state.closed:
                return
            error = transport.terminal_over(cut) or await self._return()
            if error is not None:
                self._socket = None
                self._state.closed = self._state.closed or error

    async def _return(self) -> IsoletError | None:
        last: Exception | None = None
        while self._failed < _TRIES:
            if self._failed > 0:
                await io.sleep(config.wait_before(self._failed - 1))
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
