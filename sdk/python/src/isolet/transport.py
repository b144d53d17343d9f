"""Settings and error conversion that the sync and async transports share."""

from __future__ import annotations

import socket

import httpx

from .errors import IsoletError, ShellClosedError, TerminalClosedError, UnreachableError, error_from_response

# TCP keep-alive. A command may be silent for hours; keep-alive tells that from a dead connection.
#: Idle seconds before the first probe.
_KEEPALIVE_IDLE_S = 30
#: Seconds between probes.
_KEEPALIVE_INTERVAL_S = 10
#: Unanswered probes before the connection counts as dead.
_KEEPALIVE_PROBES = 3
#: Limit on a WebSocket message, in bytes; the server's messages are far smaller.
MESSAGE_BYTES_MAX = 4 * 1024 * 1024
#: Seconds between pings of a WebSocket: the server drops a client that is silent for 30 s.
PING_S = 15.0
#: Seconds of silence before a ping checks the connection.
SILENT_S = 45.0
#: Seconds to wait for the pong.
ANSWER_S = 20.0
#: Read timeout of an event stream, in seconds: the server sends a heartbeat every 15 s.
EVENTS_S = 60.0
#: Close code of a terminal's socket: no terminal is running, and the client asked not to open one.
_NONE_RUNS = 4404


class CutError(Exception):
    """A WebSocket connection ended; ``code`` is the close code, if any."""

    def __init__(self, code: int | None, reason: str = "") -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


def socket_options() -> list[tuple[int, int, int]]:
    """Socket options of every connection: TCP keep-alive."""
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, value in (
        ("TCP_KEEPIDLE", _KEEPALIVE_IDLE_S),
        ("TCP_KEEPINTVL", _KEEPALIVE_INTERVAL_S),
        ("TCP_KEEPCNT", _KEEPALIVE_PROBES),
    ):
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options


def limits() -> httpx.Limits:
    """Connection pool limits: any number of connections at once, 20 idle ones."""
    return httpx.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=5.0)


def request_timeout(timeout: float, waits_for_command: bool) -> httpx.Timeout:
    """Timeouts of a request: ``timeout`` seconds per step, but no read timeout while a command runs."""
    return httpx.Timeout(timeout, read=None if waits_for_command else timeout)


def unreachable_error(url: str, error: httpx.TransportError) -> UnreachableError:
    """Convert a transport failure to an exception."""
    if isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)):
        return UnreachableError(
            f"{url} does not answer",
            code="unreachable",
            hint="check that the server is running and that ISOLET_URL is right",
        )
    if isinstance(error, httpx.TimeoutException):
        return UnreachableError(
            f"{url} did not answer in time",
            code="timeout",
            hint="the request may have been carried out",
        )
    return UnreachableError(
        f"the connection to {url} broke", code="cut", hint="the request may have been carried out"
    )


def upgrade_error(status: int, body: bytes) -> IsoletError:
    """Convert a refused WebSocket upgrade to an exception."""
    return error_from_response(status, body, {})


def shell_closed_error(cut: CutError) -> IsoletError | None:
    """Reason not to reconnect to a shell; ``None`` if the client should reconnect."""
    if cut.code in (1000, 1001):
        return ShellClosedError(f"the shell has ended: {cut.reason or 'closed'}", code="shell_closed")
    return _broken("shell", cut)


def terminal_closed_error(cut: CutError) -> IsoletError | None:
    """Reason not to reconnect to a terminal; ``None`` if the client should reconnect."""
    if cut.code in (1000, 1001):
        return TerminalClosedError(f"the terminal has ended: {cut.reason or 'closed'}", code="closed")
    if cut.code == _NONE_RUNS:
        return TerminalClosedError(
            "the terminal ended while the connection was lost",
            code="no_terminal",
            hint="attach again to open a new one",
        )
    return _broken("terminal", cut)


def _broken(what: str, cut: CutError) -> IsoletError | None:
    if cut.code == 1008:
        return IsoletError(f"the server closed the {what}: {cut.reason}", code="unauthorized")
    if cut.code in (1002, 1003, 1007, 1009, 1010):
        return IsoletError(f"protocol error: {cut.reason}", code="protocol")
    return None
