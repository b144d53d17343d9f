"""What is told of terminals, their recordings and tickets. Times are in UTC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True)
class TerminalClient:
    """Somebody who is attached to a terminal."""

    client: int  #: Counts the clients of the terminal.
    name: str  #: As it calls itself.
    mode: str  #: ``edit`` or ``view``.
    cols: int | None  #: Its own window, where it has one.
    rows: int | None
    typing: bool  #: It typed last: the terminal has its size.

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> TerminalClient:
        """Reads it from JSON."""
        return cls(
            client=told["client"],
            name=told["name"],
            mode=told["mode"],
            cols=told.get("cols"),
            rows=told.get("rows"),
            typing=told["typing"],
        )


@dataclass(frozen=True)
class TerminalAttached:
    """First at each connect: what it has led to."""

    terminal: str  #: Names this run of the terminal: the next one has another.
    client: int  #: The number of this client.
    fresh: bool  #: It was opened by this attach.
    cols: int
    rows: int
    pid: int  #: Of its program, inside.
    again: bool  #: A connection was lost, and this one goes on with the same terminal.


@dataclass(frozen=True)
class TerminalOutput:
    """A piece of what the terminal shows."""

    text: str  #: Never splits a character; U+FFFD for what is no UTF-8.
    data: bytes = field(repr=False)  #: The exact bytes, escape sequences too.
    offset: int  #: Of the first byte, among all that the terminal has shown.


@dataclass(frozen=True)
class TerminalSnapshot:
    """Draws the whole screen and its scrollback, from a full reset on, in place of output that is not
    sent. Its bytes are not part of the output and have no offset."""

    text: str
    data: bytes = field(repr=False)
    missed: int  #: Bytes of output that are not sent because of it.


@dataclass(frozen=True)
class TerminalSize:
    """The terminal has another size; what follows is drawn for it."""

    cols: int
    rows: int


@dataclass(frozen=True)
class TerminalClients:
    """Who is attached, whenever it changes."""

    clients: tuple[TerminalClient, ...]


@dataclass(frozen=True)
class TerminalRefused:
    """Something was refused, such as a size of 0; the terminal stays."""

    message: str


@dataclass(frozen=True)
class TerminalExit:
    """The program has ended: the last event."""

    code: int  #: 128 and the signal where a signal ended it.
    signal: str | None = None  #: As ``SIGTERM``.


#: What a terminal tells.
TerminalEvent = (
    TerminalAttached
    | TerminalOutput
    | TerminalSnapshot
    | TerminalSize
    | TerminalClients
    | TerminalRefused
    | TerminalExit
)


@dataclass(frozen=True)
class TerminalInfo:
    """A terminal that runs."""

    session: str
    terminal: str  #: Names this run of it.
    pid: int  #: Of its program, inside.
    command: tuple[str, ...]  #: Program and arguments.
    cols: int
    rows: int
    offset: int  #: Bytes of output so far.
    title: str  #: Set by its program: nothing that can be trusted.
    clients: tuple[TerminalClient, ...]
    age: float  #: Seconds since it was opened.

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> TerminalInfo:
        """Reads it from JSON."""
        return cls(
            session=told["session"],
            terminal=told["terminal"],
            pid=told["pid"],
            command=tuple(told["command"]),
            cols=told["cols"],
            rows=told["rows"],
            offset=told["offset"],
            title=told["title"],
            clients=tuple(map(TerminalClient.of, told["clients"])),
            age=told["age_ms"] / 1000,
        )


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


@dataclass(frozen=True)
class Recording:
    """What a terminal has shown, in asciicast version 2."""

    id: str
    session: str
    terminal: str
    started_at: datetime
    ended_at: datetime | None  #: ``None`` while it grows.
    size: int  #: In bytes.
    cut: bool  #: It lacks its end: it was too long, or the server's disk was full, or it was killed.

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Recording:
        """Reads it from JSON."""
        ended = told.get("ended_at")
        return cls(
            id=told["id"],
            session=told["session"],
            terminal=told["terminal"],
            started_at=_time(told["started_at"]),
            ended_at=None if ended is None else _time(ended),
            size=told["size"],
            cut=told["cut"],
        )


@dataclass(frozen=True)
class Ticket:
    """Opens one WebSocket of a sandbox, once, in place of a key."""

    ticket: str = field(repr=False)  #: Given as ``?ticket=``.
    expires_at: datetime

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Ticket:
        """Reads it from JSON."""
        return cls(told["ticket"], _time(told["expires_at"]))
