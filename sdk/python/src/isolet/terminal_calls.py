"""HTTP requests for terminals, recordings and tickets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from .calls import Call, call, json_call, sandbox_path, without_none
from .values import Duration, quote_id, whole_seconds

#: The server answers with ``pong``.
PING = '{"type":"ping"}'


@dataclass(frozen=True)
class Attach:
    """Options for attaching to a terminal."""

    session: str
    command: Sequence[str]  #: Program and arguments; empty for bash.
    mode: str  #: ``edit`` or ``view``.
    name: str | None
    record: bool
    open: bool  #: Open a terminal if none is running.


def attach(sandbox: str, options: Attach, size: tuple[int, int], at: tuple[str, int] | None) -> Call:
    """Attach to a terminal; must be sent as a WebSocket upgrade.

    Args:
        sandbox: id of the sandbox.
        options: session, command and mode.
        size: columns and rows of the client's window.
        at: id of a terminal and an output offset to continue from.
    """
    query = [("session", options.session), ("cols", str(size[0])), ("rows", str(size[1])), ("events", "1")]
    if options.command:
        query += [("shell", options.command[0]), *(("arg", one) for one in options.command[1:])]
    if options.mode != "edit":
        query.append(("mode", options.mode))
    if options.name is not None:
        query.append(("name", options.name))
    if options.record:
        query.append(("record", "1"))
    if not options.open:
        query.append(("open", "0"))
    if at is not None:
        query += [("terminal", at[0]), ("since", str(at[1]))]
    return call("GET", f"{sandbox_path(sandbox)}/terminal", query)


def resize(cols: int, rows: int) -> str:
    """Frame that reports the size of the client's window."""
    return json.dumps({"type": "resize", "cols": cols, "rows": rows})


def terminals(at: str) -> Call:
    """List running terminals."""
    return call("GET", f"{at}/terminals", repeatable=True)


def close(at: str, session: str) -> Call:
    """Close a terminal."""
    return call("DELETE", f"{at}/terminals/{quote_id(session)}", repeatable=True)


def record(at: str, session: str, method: str) -> Call:
    """Start (``POST``) or stop (``DELETE``) a recording; repeating either has no further effect."""
    return call(method, f"{at}/terminals/{quote_id(session)}/recording", repeatable=True)


def recordings(at: str) -> Call:
    """List recordings."""
    return call("GET", f"{at}/recordings", repeatable=True)


def recording(at: str, id: str, method: str = "GET") -> Call:
    """Read a recording, or delete it."""
    return call(method, f"{at}/recordings/{quote_id(id)}", repeatable=True)


def ticket(
    sandbox: str, *, use: str, session: str | None, mode: str | None, port: int | None, ttl: Duration | None
) -> Call:
    """Create a ticket."""
    body = without_none(
        sandbox=sandbox,
        use=use,
        session=session,
        mode=mode,
        port=port,
        ttl_s=None if ttl is None else whole_seconds(ttl),
    )
    return json_call("POST", "/v1/tickets", body)
