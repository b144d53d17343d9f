"""What is asked of the server about terminals, their recordings and tickets, as requests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from .calls import Call, call, json_call, said, sandbox_path
from .values import Duration, id_in_url, whole_seconds

#: Answered with ``pong``.
PING = '{"type":"ping"}'


@dataclass(frozen=True)
class Attach:
    """How a terminal is attached."""

    session: str
    command: Sequence[str]  #: Program and arguments; bash when there are none.
    mode: str  #: ``edit`` or ``view``.
    name: str | None
    record: bool
    open: bool  #: Opens one where none runs.


def attach(sandbox: str, how: Attach, size: tuple[int, int], at: tuple[str, int] | None) -> Call:
    """Attaches to a terminal; to be sent as an upgrade.

    Args:
        sandbox: its id.
        how: what was asked for.
        size: columns and rows of the window that shows it.
        at: goes on behind this offset of this terminal.
    """
    query = [("session", how.session), ("cols", str(size[0])), ("rows", str(size[1])), ("events", "1")]
    if how.command:
        query += [("shell", how.command[0]), *(("arg", one) for one in how.command[1:])]
    if how.mode != "edit":
        query.append(("mode", how.mode))
    if how.name is not None:
        query.append(("name", how.name))
    if how.record:
        query.append(("record", "1"))
    if not how.open:
        query.append(("open", "0"))
    if at is not None:
        query += [("terminal", at[0]), ("since", str(at[1]))]
    return call("GET", f"{sandbox_path(sandbox)}/terminal", query)


def resize(cols: int, rows: int) -> str:
    """The frame that tells a window's size."""
    return json.dumps({"type": "resize", "cols": cols, "rows": rows})


def terminals(at: str) -> Call:
    """Those that run."""
    return call("GET", f"{at}/terminals", again=True)


def close(at: str, session: str) -> Call:
    """Hangs one up."""
    return call("DELETE", f"{at}/terminals/{id_in_url(session)}", again=True)


def record(at: str, session: str, method: str) -> Call:
    """Begins (``POST``) or ends (``DELETE``) a recording; a second begin finds the first."""
    return call(method, f"{at}/terminals/{id_in_url(session)}/recording", again=True)


def recordings(at: str) -> Call:
    """What was recorded."""
    return call("GET", f"{at}/recordings", again=True)


def recording(at: str, id: str, method: str = "GET") -> Call:
    """Reads, or with ``DELETE`` removes, a recording."""
    return call(method, f"{at}/recordings/{id_in_url(id)}", again=True)


def ticket(
    sandbox: str, *, use: str, session: str | None, mode: str | None, port: int | None, ttl: Duration | None
) -> Call:
    """Takes a ticket."""
    body = said(
        sandbox=sandbox,
        use=use,
        session=session,
        mode=mode,
        port=port,
        ttl_s=None if ttl is None else whole_seconds(ttl),
    )
    return json_call("POST", "/v1/tickets", body)
