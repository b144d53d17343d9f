"""A session's terminal over a WebSocket."""

from __future__ import annotations

import math
import re
import time
from types import TracebackType

from ..errors import TerminalClosedError, UnreachableError, UsageError, WaitTimeoutError
from ..terminal import TerminalClient, TerminalEvent, TerminalExit
from ..transport import CutError
from ..values import Duration, seconds
from .terminal_connection import AsyncTerminalConnection

#: The server's limit on one input frame, in bytes.
_INPUT_BYTES = 64 * 1024


class AsyncTerminal(AsyncTerminalConnection):
    """A terminal. Use it in ``async with``, and ``async for`` inside; its first use connects.

    After a lost connection the terminal reconnects and continues at the same byte: no output is lost or
    repeated, except as a :class:`TerminalSnapshot` states. A terminal whose program exited during the
    interruption is not opened again.

    The server buffers unread output. A client that reads too slowly gets a snapshot instead of the output
    it missed. One task reads; others may write at the same time.
    """

    @property
    def id(self) -> str | None:
        """Id of this run of the terminal, for ``resume``; ``None`` before the first connection."""
        return None if self._state.attached is None else self._state.attached.terminal

    @property
    def offset(self) -> int | None:
        """Bytes of output read so far, for ``since``."""
        return self._state.offset

    @property
    def clients(self) -> tuple[TerminalClient, ...]:
        """Attached clients, as of the last event read."""
        return self._state.clients

    @property
    def exit(self) -> TerminalExit | None:
        """Exit status of the program; ``None`` before its exit event was read."""
        return self._state.exit

    def __aiter__(self) -> AsyncTerminal:
        return self

    async def __anext__(self) -> TerminalEvent:
        while True:
            received = self._received
            event = self._state.next()
            if event is not None:
                return event
            if self._state.exit is not None:
                raise StopAsyncIteration
            await self._receive(received)

    async def wait_for(self, pattern: str | re.Pattern[str], *, timeout: Duration = 30) -> str:
        """Wait until the output contains ``pattern``. Reading continues after the match.

        Args:
            pattern: text, or a compiled expression of ``re``; searched in the last 256 KiB of unread
                output.
            timeout: seconds, or text such as ``"10m"``.

        Returns:
            unread output up to and including the match, with escape sequences.

        Raises:
            WaitTimeoutError: no match in time; the output can still be read.
            TerminalClosedError: the program exited first.
        """
        until = time.monotonic() + seconds(timeout)
        while True:
            received = self._received
            found = self._state.find(pattern)
            if found is not None:
                return found
            left = until - time.monotonic()
            if left <= 0:
                text = f"{pattern!r} not found within {timeout}; the output ends with {self._state.tail()!r}"
                raise WaitTimeoutError(text, code="timeout")
            await self._receive(received, left)

    async def exited(self, *, timeout: Duration | None = None) -> TerminalExit:
        """Wait for the program's exit and discard output until then.

        Args:
            timeout: seconds, or text such as ``"10m"``; unlimited by default.

        Returns:
            exit code and signal.

        Raises:
            WaitTimeoutError: the program is still running.
            TerminalClosedError: the client detached, or the connection was lost for good.
        """
        until = math.inf if timeout is None else time.monotonic() + seconds(timeout)
        while True:
            received = self._received
            while self._state.next() is not None:
                pass
            if self._state.exit is not None:
                return self._state.exit
            left = until - time.monotonic()
            if left <= 0:
                raise WaitTimeoutError(f"the program did not exit within {timeout}", code="timeout")
            await self._receive(received, None if timeout is None else left)

    async def write(self, data: str | bytes) -> None:
        r"""Send input to the terminal.

        Args:
            data: text or bytes. ``"\n"`` is Enter, ``"\x03"`` is Ctrl-C.

        Raises:
            UsageError: ``view_only``.
            TerminalClosedError: the program has exited, or this client detached.
            UnreachableError: ``cut``: the connection broke during the write, and the input may or may not
                have arrived. It is not sent again; the terminal can still be used.
        """
        if self._options.mode == "view":
            raise UsageError("this client is attached in view mode and cannot write", code="view_only")
        raw = data.encode() if isinstance(data, str) else data
        for at in range(0, len(raw), _INPUT_BYTES):
            socket = await self._usable_socket()
            try:
                await socket.send(raw[at : at + _INPUT_BYTES])
            except CutError:
                raise UnreachableError("the connection broke during the write", code="cut") from None

    async def resize(self, cols: int, rows: int) -> None:
        """Report a new size of the client's window. The terminal has the size of the client that typed last;
        clients in view mode have no influence.

        Args:
            cols: width, at most 1000; larger values are reduced.
            rows: height, at most 400; larger values are reduced.

        Raises:
            UsageError: ``bad_size``.
        """
        if cols < 1 or rows < 1:
            raise UsageError("a window needs at least one column and one row", code="bad_size")
        if (cols, rows) != self._size:
            self._size = (cols, rows)
            await self._send_size()

    async def leave(self) -> tuple[str, int]:
        """Detach; the terminal keeps running.

        Returns:
            its id and the output offset, for ``resume`` and ``since``.
        """
        await self.open()
        name, offset = self.id or "", self.offset or 0
        await self.close()
        return name, offset

    async def close(self) -> None:
        """Detach; the terminal keeps running."""
        self._state.closed = self._state.closed or TerminalClosedError(
            "this client detached from the terminal", code="closed", hint="attach again"
        )
        socket, self._socket = self._socket, None
        if socket is not None:
            await socket.close()

    async def __aenter__(self) -> AsyncTerminal:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
