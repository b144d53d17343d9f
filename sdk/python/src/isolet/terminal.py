"""Terminals, recordings and tickets as data. Times are in UTC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True)
class TerminalClient:
    """A client that is attached to a terminal."""

    client: int  #: Number of the client, unique within the terminal.
    name: str  #: Name that the client gave.
    mode: str  #: ``edit`` or ``view``.
    cols: int | None  #: Width of its window, if it has one.
    rows: int | None  #: Height of its window, if it has one.
    typing: bool  #: Typed last; the terminal has the size of its window.

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> TerminalClient:
        """Parse the server's JSON."""
        return cls(
            client=body["client"],
            name=body["name"],
            mode=body["mode"],
            cols=body.get("cols"),
            rows=body.get("rows"),
            typing=body["typing"],
        )


@dataclass(frozen=True)
class TerminalAttached:
    """First event after each connect: the terminal that the client is attached to."""

    terminal: str  #: Id of this run of the terminal; a reopened terminal gets a new one.
    client: int  #: Number of this client.
    fresh: bool  #: This attach opened the terminal.
    cols: int
    rows: int
    pid: int  #: Process id of the terminal's program, inside the sandbox.
    reconnected: bool  #: Continues the same terminal after a lost connection.


@dataclass(frozen=True)
class TerminalOutput:
    """Output of the terminal."""

    text: str  #: Never splits a character; invalid UTF-8 becomes U+FFFD.
    data: bytes = field(repr=False)  #: Raw bytes, with escape sequences.
    offset: int  #: Position of the first byte in the terminal's whole output.


@dataclass(frozen=True)
class TerminalSnapshot:
    """Redraws the whole screen and its scrollback after a full reset. The server sends a snapshot in place of
    output that the client missed. Its bytes are not part of the output and have no offset.
    """

    text: str
    data: bytes = field(repr=False)
    missed: int  #: Bytes of output that the snapshot replaces.


@dataclass(frozen=True)
class TerminalSize:
    """The terminal was resized; later output is formatted for the new size."""

    cols: int
    rows: int


@dataclass(frozen=True)
class TerminalClients:
    """The list of attached clients changed."""

    clients: tuple[TerminalClient, ...]


@dataclass(frozen=True)
class TerminalRefused:
    """The server refused a request, such as a size of 0. The terminal stays open."""

    message: str


@dataclass(frozen=True)
class TerminalExit:
    """The program has exited. Always the last event."""

    code: int  #: Exit code; 128 plus the signal number if a signal ended the program.
    signal: str | None = None  #: For example ``SIGTERM``.


#: Events that iterating over a terminal yields.
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
    """A running terminal."""

    session: str
    terminal: str  #: Id of this run of the terminal.
    pid: int  #: Process id of its program, inside the sandbox.
    command: tuple[str, ...]  #: Program and its arguments.
    cols: int
    rows: int
    offset: int  #: Bytes of output so far.
    title: str  #: Set by the program inside: do not trust it.
    clients: tuple[TerminalClient, ...]
    age: float  #: Seconds since the terminal was opened.

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> TerminalInfo:
        """Parse the server's JSON."""
        return cls(
            session=body["session"],
            terminal=body["terminal"],
            pid=body["pid"],
            command=tuple(body["command"]),
            cols=body["cols"],
            rows=body["rows"],
            offset=body["offset"],
            title=body["title"],
            clients=tuple(map(TerminalClient.from_json, body["clients"])),
            age=body["age_ms"] / 1000,
        )


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


@dataclass(frozen=True)
class Recording:
    """A terminal recording in asciicast version 2."""

    id: str
    session: str
    terminal: str
    started_at: datetime
    ended_at: datetime | None  #: ``None`` while recording.
    size: int  #: In bytes.
    cut: bool  #: Incomplete: size limit reached, disk full, or server killed.

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Recording:
        """Parse the server's JSON."""
        ended = body.get("ended_at")
        return cls(
            id=body["id"],
            session=body["session"],
            terminal=body["terminal"],
            started_at=_time(body["started_at"]),
            ended_at=None if ended is None else _time(ended),
            size=body["size"],
            cut=body["cut"],
        )


@dataclass(frozen=True)
class Ticket:
    """A one-time ticket that opens one WebSocket of a sandbox without a key."""

    ticket: str = field(repr=False)  #: Value of the query parameter ``ticket``.
    expires_at: datetime

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Ticket:
        """Parse the server's JSON."""
        return cls(body["ticket"], _time(body["expires_at"]))
