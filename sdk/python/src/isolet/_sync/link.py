"""A terminal's connection, which comes back by itself."""
# Made by tools/make_sync.py from its async twin: change that one.

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from .. import config, terminal_calls, transport
from ..errors import IsoletError, RefusedError, UnreachableError
from ..terminal_calls import Attach
from ..terminal_state import TerminalState
from ..transport import CutError
from . import io

if TYPE_CHECKING:
    from .client import Connection

#: Tries to come back after a lost connection: about a minute of them.
_TRIES = 16


class TerminalLink:
    """What goes over one connection after the other to one terminal."""

    def __init__(
        self,
        connection: Connection,
        sandbox: str,
        ready: Callable[[], None],
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

    def open(self) -> TerminalLink:
        """Connects, where it is not connected, and reads until what stood is drawn.

        Raises:
            TerminalClosedError: ``no_terminal``: what was to be resumed has ended.
            RefusedError: it was not opened.
        """
        while True:
            heard = self._heard
            if self._state.ready or self._state.exit is not None:
                return self
            self._hear(heard)

    def _tell_size(self) -> None:
        socket = self._socket
        if socket is None or self._how.mode == "view":
            return
        try:
            socket.send(terminal_calls.resize(*self._size))
        except CutError:
            # The next connection begins with it.
            return

    def _hear(self, heard: int, within: float | None = None) -> None:
        """Takes in the next message, whoever waits for it, where one comes in so many seconds.

        Args:
            heard: messages that the caller knew of: where there are more by now, it is to look at them.
            within: seconds; without an end unless told.
        """
        with self._reading:
            if self._heard != heard:
                return
            socket = self._connected()
            try:
                message = (socket.receive() if within is None else socket.receive_within(within))
                if message is None:
                    self._doubt(socket)
                    return
                self._state.take(message)
                self._heard += 1
                self._heard_at = time.monotonic()
                if self._state.ready:
                    self._failed = 0
            except CutError as cut:
                self._heard += 1
                self._lost(socket, cut)

    def _doubt(self, socket: io.Socket) -> None:
        """Nothing came: asks whether anybody is there, and lets go of who did not answer."""
        silent = time.monotonic() - self._heard_at
        if silent > transport.SILENT_S:
            socket.abort()
        elif silent > transport.PING_S:
            socket.send(terminal_calls.PING)

    def _standing(self) -> io.Socket:
        """A connection on which can be typed."""
        while True:
            heard = self._heard
            self.open()
            if self._state.closed is not None:
                raise self._state.closed
            socket = self._socket
            if socket is not None and socket.stands:
                return socket
            # What it still said before it broke is read first: it may have been the end.
            self._hear(heard)

    def _connected(self) -> io.Socket:
        if self._state.closed is not None:
            raise self._state.closed
        with self._connecting:
            if self._socket is None:
                self._sandbox_ready()
                self._connect()
            if self._socket is None:
                raise UnreachableError("the connection to the terminal was lost", code="cut")
            return self._socket

    def _connect(self) -> None:
        state, size, how = self._state, self._size, self._how
        at = None
        if state.attached is not None:
            # What runs there is not to be run again because its end was missed.
            how = replace(how, open=False, record=how.record and not self._recorded)
            at = None if state.offset is None else (state.attached.terminal, state.offset)
        self._socket = self._connection.socket(terminal_calls.attach(self._sandbox, how, size, at))
        state.begin()
        self._heard_at = time.monotonic()
        self._recorded = True
        if size != self._size:
            self._tell_size()

    def _lost(self, socket: io.Socket, cut: CutError) -> None:
        """Comes back after a broken connection, or says why not."""
        with self._connecting:
            if self._socket is not socket or self._state.closed:
                return
            error = transport.terminal_over(cut) or self._return()
            if error is not None:
                self._socket = None
                self._state.closed = self._state.closed or error

    def _return(self) -> IsoletError | None:
        last: Exception | None = None
        while self._failed < _TRIES:
            if self._failed > 0:
                io.sleep(config.wait_before(self._failed - 1))
            self._failed += 1
            try:
                self._connect()
                return None
            except UnreachableError as error:
                last = error
            except RefusedError as error:
                if error.status < 500 and error.status != 429:
                    return error
                last = error
        return UnreachableError(f"the connection to the terminal was lost: {last}", code="cut")
