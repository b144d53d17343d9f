"""A session's terminal over a WebSocket: what it shows, and what is typed."""
# Made by tools/make_sync.py from its async twin: change that one.

from __future__ import annotations

import math
import re
import time
from types import TracebackType

from ..errors import TerminalClosedError, UnreachableError, UsageError, WaitTimeoutError
from ..terminal import TerminalClient, TerminalEvent, TerminalExit
from ..transport import CutError
from ..values import Duration, seconds
from .link import TerminalLink

#: The most that the server takes in one frame, in bytes.
_TYPED_BYTES = 64 * 1024


class Terminal(TerminalLink):
    """A terminal. Use it in ``with``, and ``for`` inside; it connects with its first use.

    When the connection breaks it comes back by itself, at the byte where it broke: no output is missing
    or comes twice, but for what a :class:`TerminalSnapshot` says. A terminal that ended meanwhile is not
    opened anew.

    What nobody reads waits at the server: who reads too slowly is given a snapshot in place of what it
    missed. One thread reads; others may type meanwhile.
    """

    @property
    def id(self) -> str | None:
        """Names this run of the terminal, for ``resume``; ``None`` before it is connected."""
        return None if self._state.attached is None else self._state.attached.terminal

    @property
    def offset(self) -> int | None:
        """Bytes of output that it had shown with the last that was read here: for ``since``."""
        return self._state.offset

    @property
    def clients(self) -> tuple[TerminalClient, ...]:
        """Who is attached, as far as it was read."""
        return self._state.clients

    @property
    def exit(self) -> TerminalExit | None:
        """How its program ended; ``None`` before that was read."""
        return self._state.exit

    def __iter__(self) -> Terminal:
        return self

    def __next__(self) -> TerminalEvent:
        while True:
            heard = self._heard
            event = self._state.next()
            if event is not None:
                return event
            if self._state.exit is not None:
                raise StopIteration
            self._hear(heard)

    def wait_for(self, pattern: str | re.Pattern[str], *, timeout: Duration = 30) -> str:
        """Waits until it has shown ``pattern``; gives everything that was shown and not read before, up to
        and with it, escape sequences too. Reading goes on behind it.

        Args:
            pattern: a text, or an expression of ``re``; looked for in the last 256 KiB.
            timeout: seconds, or ``"10m"``.

        Raises:
            WaitTimeoutError: it was not shown; what was shown instead can still be read.
            TerminalClosedError: the program ended before.
        """
        until = time.monotonic() + seconds(timeout)
        while True:
            heard = self._heard
            found = self._state.find(pattern)
            if found is not None:
                return found
            left = until - time.monotonic()
            if left <= 0:
                said = f"{pattern!r} was not shown within {timeout}, but {self._state.tail()!r}"
                raise WaitTimeoutError(said, code="timeout")
            self._hear(heard, left)

    def exited(self, *, timeout: Duration | None = None) -> TerminalExit:
        """Waits for the program's end, and drops what is shown until then.

        Args:
            timeout: seconds, or ``"10m"``; without an end unless told.

        Raises:
            WaitTimeoutError: it runs on.
            TerminalClosedError: the terminal was left, or lost, before.
        """
        until = math.inf if timeout is None else time.monotonic() + seconds(timeout)
        while True:
            heard = self._heard
            while self._state.next() is not None:
                pass
            if self._state.exit is not None:
                return self._state.exit
            left = until - time.monotonic()
            if left <= 0:
                raise WaitTimeoutError(f"the program has not ended within {timeout}", code="timeout")
            self._hear(heard, None if timeout is None else left)

    def write(self, data: str | bytes) -> None:
        r"""Types. A line ends with ``"\n"``, Ctrl-C is ``"\x03"``.

        Raises:
            UsageError: ``view_only``.
            TerminalClosedError: the program has ended, or the terminal was left.
            UnreachableError: ``cut``: the connection broke at that moment, and what was typed may or may
                not have arrived. It is not typed again; the terminal can still be used.
        """
        if self._how.mode == "view":
            raise UsageError("this terminal is only looked at", code="view_only")
        raw = data.encode() if isinstance(data, str) else data
        for at in range(0, len(raw), _TYPED_BYTES):
            socket = self._standing()
            try:
                socket.send(raw[at : at + _TYPED_BYTES])
            except CutError:
                raise UnreachableError("the connection broke while this was typed", code="cut") from None

    def resize(self, cols: int, rows: int) -> None:
        """The window that shows it has another size: at most 1000 by 400, a larger one is cut. The terminal
        has the size of the client that typed last, and never that of one that only looks."""
        if cols < 1 or rows < 1:
            raise UsageError("a window has at least one column and one row", code="bad_size")
        if (cols, rows) != self._size:
            self._size = (cols, rows)
            self._tell_size()

    def leave(self) -> tuple[str, int]:
        """Lets go of it; it runs on. Gives what to come back with by ``resume`` and ``since``."""
        self.open()
        name, offset = self.id or "", self.offset or 0
        self.close()
        return name, offset

    def close(self) -> None:
        """Leaves the terminal, which runs on."""
        self._state.closed = self._state.closed or TerminalClosedError(
            "the terminal was left here", code="closed", hint="attach again"
        )
        socket, self._socket = self._socket, None
        if socket is not None:
            socket.close()

    def __enter__(self) -> Terminal:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
