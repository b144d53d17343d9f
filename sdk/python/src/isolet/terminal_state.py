"""State of a terminal, derived from WebSocket messages.

Independent of connections: several connections in a row may serve one terminal. The state remembers the
output offset, so that no byte is lost or repeated after a reconnect.
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

#: ``wait_for`` searches this many bytes of unread output; older output is dropped.
SEARCH_BYTES = 256 * 1024
#: Unread pieces of output are merged up to this size, in bytes.
_MERGE_BYTES = 64 * 1024
_SCREEN_EVENTS = (TerminalOutput, TerminalSnapshot)


class TerminalState:
    """State of one terminal. Thread-safe."""

    def __init__(self, at: tuple[str, int | None] | None = None) -> None:
        self.unread: deque[TerminalEvent] = deque()
        #: The latest attach. When resuming, only the terminal's id is set.
        self.attached = None if at is None else TerminalAttached(at[0], 0, False, 0, 0, 0, False)
        #: Bytes of output read so far; ``None`` before the first attach.
        self.offset = None if at is None else at[1]
        self.clients: tuple[TerminalClient, ...] = ()
        #: The initial screen is complete and the terminal accepts input.
        self.ready = False
        self.exit: TerminalExit | None = None
        #: Set once no further events can come.
        self.closed: IsoletError | None = None
        self._snapshot_pending: tuple[int, int] | None = None
        self._snapshot_data = bytearray()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._lock = threading.RLock()

    def begin(self) -> None:
        """Start reading from a new connection."""
        with self._lock:
            self.ready, self._snapshot_pending = False, None

    def take(self, message: str | bytes) -> None:
        """Process one message of the server."""
        with self._lock:
            if isinstance(message, bytes):
                self._bytes(message)
                return
            frame = json.loads(message)
            reader = getattr(self, f"_on_{frame.get('type')}", None)
            if reader is not None:
                reader(frame)

    def _bytes(self, data: bytes) -> None:
        if self._snapshot_pending is not None:
            left, missed = self._snapshot_pending
            self._snapshot_data += data[:left]
            self._snapshot_pending = left - len(data[:left]), missed
            if self._snapshot_pending[0] == 0:
                self._snapshot(missed)
            data = data[left:]
        if data:
            self._output(data)

    def _output(self, data: bytes) -> None:
        offset, text = self.offset or 0, self._decoder.decode(data)
        self.offset = offset + len(data)
        last = self.unread[-1] if self.unread else None
        if isinstance(last, TerminalOutput) and len(last.data) < _MERGE_BYTES:
            # Programs write many small pieces, and `find` joins all of them on each call.
            self.unread[-1] = TerminalOutput(last.text + text, last.data + data, last.offset)
        else:
            self.unread.append(TerminalOutput(text, data, offset))

    def _snapshot(self, missed: int) -> None:
        data, self._snapshot_pending, self._snapshot_data = bytes(self._snapshot_data), None, bytearray()
        self._decoder.reset()
        self.unread.append(TerminalSnapshot(data.decode(errors="replace"), data, missed))

    def _on_attached(self, frame: Mapping[str, Any]) -> None:
        reconnected = self.attached is not None and self.attached.terminal == frame["terminal"]
        if not reconnected:
            self.offset = None
            self._decoder.reset()
        names = ("terminal", "client", "fresh", "cols", "rows", "pid")
        self.attached = TerminalAttached(**{name: frame[name] for name in names}, reconnected=reconnected)
        self.unread.append(self.attached)

    def _on_snapshot(self, frame: Mapping[str, Any]) -> None:
        self._snapshot_pending, self._snapshot_data = (
            (int(frame["bytes"]), int(frame.get("missed", 0))),
            bytearray(),
        )
        if self._snapshot_pending[0] == 0:
            self._snapshot(self._snapshot_pending[1])

    def _on_at(self, frame: Mapping[str, Any]) -> None:
        self.offset = int(frame["offset"])

    def _on_ready(self, _told: Mapping[str, Any]) -> None:
        self.ready = True

    def _on_size(self, frame: Mapping[str, Any]) -> None:
        self.unread.append(TerminalSize(frame["cols"], frame["rows"]))

    def _on_clients(self, frame: Mapping[str, Any]) -> None:
        self.clients = tuple(map(TerminalClient.from_json, frame["clients"]))
        self.unread.append(TerminalClients(self.clients))

    def _on_error(self, frame: Mapping[str, Any]) -> None:
        self.unread.append(TerminalRefused(str(frame.get("message", ""))))

    def _on_exit(self, frame: Mapping[str, Any]) -> None:
        self.exit = TerminalExit(frame["code"], frame.get("signal"))
        self.unread.append(self.exit)
        text = f"the terminal's program has exited ({self.exit.code})"
        self.closed = self.closed or TerminalClosedError(
            text, code="exited", hint="attach again to open a new one"
        )

    def next(self) -> TerminalEvent | None:
        """Take the oldest unread event; ``None`` if there is none."""
        with self._lock:
            return self.unread.popleft() if self.unread else None

    def find(self, pattern: str | re.Pattern[str]) -> str | None:
        """Search the unread output.

        Returns:
            the output up to and including the first match, which is then read; ``None`` without a match.
        """
        with self._lock:
            shown = b"".join(event.data for event in self.unread if isinstance(event, _SCREEN_EVENTS))
            # Surrogates stand for invalid UTF-8, so that encoding restores the exact bytes.
            text = shown.decode(errors="surrogateescape")
            end = _match_end(text, pattern)
            if end is None:
                self._drop(len(shown) - SEARCH_BYTES)
                return None
            found = text[:end].encode(errors="surrogateescape")
            self._drop(len(found))
            return found.decode(errors="replace")

    def tail(self) -> str:
        """End of the unread output, for error messages."""
        with self._lock:
            return "".join(event.text for event in self.unread if isinstance(event, _SCREEN_EVENTS))[-200:]

    def _drop(self, size: int) -> None:
        """Discard the first ``size`` bytes of unread output, and events before them."""
        while size > 0:
            event = self.unread.popleft()
            if not isinstance(event, _SCREEN_EVENTS):
                continue
            if len(event.data) > size:
                rest = event.data[size:]
                text = rest.decode(errors="replace")
                if isinstance(event, TerminalOutput):
                    self.unread.appendleft(TerminalOutput(text, rest, event.offset + size))
                else:
                    self.unread.appendleft(TerminalSnapshot(text, rest, 0))
            size -= len(event.data)


def _match_end(text: str, pattern: str | re.Pattern[str]) -> int | None:
    if isinstance(pattern, str):
        at = text.find(pattern)
        return None if at < 0 else at + len(pattern)
    match = pattern.search(text)
    return None if match is None else match.end()
