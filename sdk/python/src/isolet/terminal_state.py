"""A terminal's WebSocket: what is known of the terminal from what it says.

Knows nothing of connections. One connection after the other is used for the same terminal; how far its
output was read is kept here, so that no byte is missing or comes twice.
"""

from __future__ import annotations

import codecs
import json
import re
import threading
from collections import deque
from collections.abc import Mapping
from typing import Any

from .errors import IsoletError, TerminalClosedError
from .terminal import (
    TerminalAttached,
    TerminalClient,
    TerminalClients,
    TerminalEvent,
    TerminalExit,
    TerminalOutput,
    TerminalRefused,
    TerminalSize,
    TerminalSnapshot,
)

#: What a wait looks through, in bytes; what was shown before that is dropped.
LOOKED_BYTES = 256 * 1024
#: Pieces of output that nobody has asked for yet are joined up to this size, in bytes.
_JOINED_BYTES = 64 * 1024
_SHOWN = (TerminalOutput, TerminalSnapshot)


class TerminalState:
    """One terminal, as far as it was read. Threads may share it."""

    def __init__(self, at: tuple[str, int | None] | None = None) -> None:
        self.unread: deque[TerminalEvent] = deque()
        #: What the last connect has led to; where it was left elsewhere, its name alone.
        self.attached = None if at is None else TerminalAttached(at[0], 0, False, 0, 0, 0, False)
        #: How many bytes of output it had shown with the last that was read; ``None`` before the first.
        self.offset = None if at is None else at[1]
        self.clients: tuple[TerminalClient, ...] = ()
        #: What stood is drawn: what is typed now is taken.
        self.ready = False
        self.exit: TerminalExit | None = None
        #: Why nothing more comes.
        self.closed: IsoletError | None = None
        self._drawing: tuple[int, int] | None = None
        self._drawn = bytearray()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._lock = threading.RLock()

    def begin(self) -> None:
        """A connection takes the place of the one before."""
        with self._lock:
            self.ready, self._drawing = False, None

    def take(self, message: str | bytes) -> None:
        """One message of the server."""
        with self._lock:
            if isinstance(message, bytes):
                self._bytes(message)
                return
            told = json.loads(message)
            reader = getattr(self, f"_on_{told.get('type')}", None)
            if reader is not None:
                reader(told)

    def _bytes(self, data: bytes) -> None:
        if self._drawing is not None:
            left, missed = self._drawing
            self._drawn += data[:left]
            self._drawing = left - len(data[:left]), missed
            if self._drawing[0] == 0:
                self._snapshot(missed)
            data = data[left:]
        if data:
            self._output(data)

    def _output(self, data: bytes) -> None:
        offset, text = self.offset or 0, self._decoder.decode(data)
        self.offset = offset + len(data)
        last = self.unread[-1] if self.unread else None
        if isinstance(last, TerminalOutput) and len(last.data) < _JOINED_BYTES:
            # Programs write in many small pieces; a wait looks through all of them each time.
            self.unread[-1] = TerminalOutput(last.text + text, last.data + data, last.offset)
        else:
            self.unread.append(TerminalOutput(text, data, offset))

    def _snapshot(self, missed: int) -> None:
        data, self._drawing, self._drawn = bytes(self._drawn), None, bytearray()
        self._decoder.reset()
        self.unread.append(TerminalSnapshot(data.decode(errors="replace"), data, missed))

    def _on_attached(self, told: Mapping[str, Any]) -> None:
        again = self.attached is not None and self.attached.terminal == told["terminal"]
        if not again:
            self.offset = None
            self._decoder.reset()
        names = ("terminal", "client", "fresh", "cols", "rows", "pid")
        self.attached = TerminalAttached(**{name: told[name] for name in names}, again=again)
        self.unread.append(self.attached)

    def _on_snapshot(self, told: Mapping[str, Any]) -> None:
        self._drawing, self._drawn = (int(told["bytes"]), int(told.get("missed", 0))), bytearray()
        if self._drawing[0] == 0:
            self._snapshot(self._drawing[1])

    def _on_at(self, told: Mapping[str, Any]) -> None:
        self.offset = int(told["offset"])

    def _on_ready(self, _told: Mapping[str, Any]) -> None:
        self.ready = True

    def _on_size(self, told: Mapping[str, Any]) -> None:
        self.unread.append(TerminalSize(told["cols"], told["rows"]))

    def _on_clients(self, told: Mapping[str, Any]) -> None:
        self.clients = tuple(map(TerminalClient.of, told["clients"]))
        self.unread.append(TerminalClients(self.clients))

    def _on_error(self, told: Mapping[str, Any]) -> None:
        self.unread.append(TerminalRefused(str(told.get("message", ""))))

    def _on_exit(self, told: Mapping[str, Any]) -> None:
        self.exit = TerminalExit(told["code"], told.get("signal"))
        self.unread.append(self.exit)
        text = f"the terminal's program has ended ({self.exit.code})"
        self.closed = self.closed or TerminalClosedError(text, code="exited", hint="attach again: a new one")

    def next(self) -> TerminalEvent | None:
        """The oldest that was not given; ``None`` when there is none."""
        with self._lock:
            return self.unread.popleft() if self.unread else None

    def find(self, pattern: str | re.Pattern[str]) -> str | None:
        """Everything that was shown and not given, up to and with the first match; that is given then."""
        with self._lock:
            shown = b"".join(event.data for event in self.unread if isinstance(event, _SHOWN))
            # Surrogates for what is no UTF-8, so that the way back to bytes is exact.
            text = shown.decode(errors="surrogateescape")
            end = _end(text, pattern)
            if end is None:
                self._drop(len(shown) - LOOKED_BYTES)
                return None
            found = text[:end].encode(errors="surrogateescape")
            self._drop(len(found))
            return found.decode(errors="replace")

    def tail(self) -> str:
        """The last that was shown and not given: for errors."""
        with self._lock:
            return "".join(event.text for event in self.unread if isinstance(event, _SHOWN))[-200:]

    def _drop(self, size: int) -> None:
        """Gives up the first ``size`` bytes that were shown, and what was told before they were."""
        while size > 0:
            event = self.unread.popleft()
            if not isinstance(event, _SHOWN):
                continue
            if len(event.data) > size:
                rest = event.data[size:]
                text = rest.decode(errors="replace")
                if isinstance(event, TerminalOutput):
                    self.unread.appendleft(TerminalOutput(text, rest, event.offset + size))
                else:
                    self.unread.appendleft(TerminalSnapshot(text, rest, 0))
            size -= len(event.data)


def _end(text: str, pattern: str | re.Pattern[str]) -> int | None:
    if isinstance(pattern, str):
        at = text.find(pattern)
        return None if at < 0 else at + len(pattern)
    match = pattern.search(text)
    return None if match is None else match.end()
