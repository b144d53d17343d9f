"""What connections of both kinds have in common."""

from __future__ import annotations

import socket

import httpx

from .errors import IsoletError, ShellClosedError, TerminalClosedError, UnreachableError, refused

#: Seconds without a sign of life after which the kernel asks whether the other side is there, and
#: between its questions. A command may be silent for hours; a dead connection is not to look like it.
_IDLE_S, _BETWEEN_S, _QUESTIONS = 30, 10, 3
#: The largest message of a shell's server, in bytes, is far below this.
MESSAGE_BYTES_MAX = 4 * 1024 * 1024
#: Every so many seconds a WebSocket says that it is there, read or not: the server lets go of a
#: client that says nothing for 30.
PING_S = 15.0
#: Seconds that a connection may be silent while it is listened to, before it is asked.
SILENT_S = 45.0
#: Seconds for the answer.
ANSWER_S = 20.0
#: Seconds between two signs of life of a stream of events, with room: the server has 15.
EVENTS_S = 60.0
#: Close code of a terminal's socket: none runs, and none was to be opened.
_NONE_RUNS = 4404


class CutError(Exception):
    """A WebSocket is no more; ``code`` is its close code, where it has one."""

    def __init__(self, code: int | None, reason: str = "") -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


def socket_options() -> list[tuple[int, int, int]]:
    """Of every connection: dead ones are noticed."""
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, value in (
        ("TCP_KEEPIDLE", _IDLE_S),
        ("TCP_KEEPINTVL", _BETWEEN_S),
        ("TCP_KEEPCNT", _QUESTIONS),
    ):
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options


def limits() -> httpx.Limits:
    """As many calls at once as the caller has; a few connections are kept for the next ones."""
    return httpx.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=5.0)


def patience(timeout: float, patient: bool) -> httpx.Timeout:
    """How long is waited: for every step ``timeout`` seconds, for the end of a command without an end."""
    return httpx.Timeout(timeout, read=None if patient else timeout)


def unreachable(url: str, error: httpx.TransportError) -> UnreachableError:
    """The error that a connection's failure stands for."""
    if isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)):
        return UnreachableError(
            f"{url} does not answer", code="unreachable", hint="is the server running, and ISOLET_URL right?"
        )
    if isinstance(error, httpx.TimeoutException):
        return UnreachableError(
            f"{url} has not answered in time",
            code="timeout",
            hint="what was asked for may be done all the same",
        )
    return UnreachableError(
        f"the connection to {url} broke", code="cut", hint="what was asked for may be done all the same"
    )


def upgrade_refused(status: int, body: bytes) -> IsoletError:
    """The error that a refused upgrade stands for."""
    return refused(status, body, {})


def hopeless(cut: CutError) -> IsoletError | None:
    """Why a shell is not connected to again; ``None`` where it is."""
    if cut.code in (1000, 1001):
        return ShellClosedError(f"the shell has ended: {cut.reason or 'closed'}", code="shell_closed")
    return _broken("shell", cut)


def terminal_over(cut: CutError) -> IsoletError | None:
    """Why a terminal is not connected to again; ``None`` where it is."""
    if cut.code in (1000, 1001):
        return TerminalClosedError(f"the terminal has ended: {cut.reason or 'closed'}", code="closed")
    if cut.code == _NONE_RUNS:
        return TerminalClosedError(
            "the terminal ended while the connection was lost",
            code="no_terminal",
            hint="attach again: that opens a fresh one",
        )
    return _broken("terminal", cut)


def _broken(what: str, cut: CutError) -> IsoletError | None:
    if cut.code == 1008:
        return IsoletError(f"the server has cut the {what} off: {cut.reason}", code="unauthorized")
    if cut.code in (1002, 1003, 1007, 1009, 1010):
        return IsoletError(f"the server did not understand this client: {cut.reason}", code="protocol")
    return None
