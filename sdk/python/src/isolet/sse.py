"""Server-sent events of one answer."""

from __future__ import annotations

import codecs
import json
from dataclasses import dataclass
from typing import Any

from .errors import UnreachableError

#: A longer event is no event of this server: output comes in pieces of 64 KiB, in base64.
EVENT_CHARS_MAX = 16 * 1024 * 1024


@dataclass(frozen=True)
class ServerEvent:
    """One event."""

    name: str
    data: dict[str, Any]
    id: str | None = None


class Parser:
    """Makes events of the pieces of a body, however they are cut."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def take(self, piece: bytes) -> list[ServerEvent]:
        """The events that end in this piece."""
        self._rest += self._decoder.decode(piece)
        *blocks, self._rest = self._rest.split("\n\n")
        if len(self._rest) > EVENT_CHARS_MAX:
            raise UnreachableError("the server sends no events", code="bad_answer")
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
        told = json.loads("\n".join(data))
    except ValueError as error:
        raise UnreachableError(f"the server sent a {name} that is no JSON", code="bad_answer") from error
    return ServerEvent(name, told if isinstance(told, dict) else {}, last)
