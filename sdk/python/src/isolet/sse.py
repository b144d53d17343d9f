"""Parser for server-sent events."""

from __future__ import annotations

import codecs
import json
from dataclasses import dataclass
from typing import Any

from .errors import UnreachableError

#: Limit on one event. The server sends output in pieces of 64 KiB (base64), far below this.
EVENT_CHARS_MAX = 16 * 1024 * 1024


@dataclass(frozen=True)
class ServerEvent:
    """One server-sent event."""

    name: str
    data: dict[str, Any]
    id: str | None = None


class Parser:
    """Parses events from chunks of bytes, wherever the chunk boundaries fall."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def take(self, piece: bytes) -> list[ServerEvent]:
        """Add a chunk; returns the events that it completes."""
        self._rest += self._decoder.decode(piece)
        *blocks, self._rest = self._rest.split("\n\n")
        if len(self._rest) > EVENT_CHARS_MAX:
            raise UnreachableError("the server's response is not an event stream", code="bad_answer")
        return [event for event in map(_event, blocks) if event is not None]


def _event(block: str) -> ServerEvent | None:
    name, data, last = "message", [], None
    for line in block.split("\n"):
        field, _, value = line.partition(":")
        if field == "event":
            name = value.strip()
        elif field == "id":
            last = value.strip()
        elif field == "data":
            data.append(value.removeprefix(" "))
    if not data:
        return None
    try:
        body = json.loads("\n".join(data))
    except ValueError as error:
        raise UnreachableError(
            f"the server sent an event {name!r} that is not JSON", code="bad_answer"
        ) from error
    return ServerEvent(name, body if isinstance(body, dict) else {}, last)
