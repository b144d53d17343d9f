"""Resource usage of a tenant, and its audit log."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


def _parse_time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


@dataclass(frozen=True)
class AccountUsage:
    """Total resource usage of a tenant's sandboxes, including deleted ones."""

    active_sandboxes: int  #: Sandboxes that exist.
    ended_sandboxes: int  #: Sandboxes that were deleted.
    cpu_seconds: float  #: Processor time of all sandboxes.
    memory_mib_seconds: float  #: Memory limit in MiB times seconds awake, summed.
    as_of: datetime  #: Time of measurement.

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> AccountUsage:
        """Parse the server's JSON."""
        return cls(
            active_sandboxes=body["active_sandboxes"],
            ended_sandboxes=body["history_sandboxes"],
            cpu_seconds=body["cpu_seconds"],
            memory_mib_seconds=body["mem_seconds"],
            as_of=_parse_time(body["as_of"]),
        )


@dataclass(frozen=True)
class AuditEntry:
    """An entry of the audit log: an API call with its caller and time, or an action of the server itself,
    such
    as putting an idle sandbox to sleep.
    """

    seq: int  #: Position in the tenant's log: 1, 2, 3, … without gaps.
    at: datetime
    sandbox: str | None  #: Id; ``None`` when the call concerned no sandbox or several.
    event: str  #: For example ``sandbox.create``, ``exec.start`` or ``sandbox.slept``.
    data: Mapping[str, Any]  #: Caller (``key``), address (``from``), route and ids in the path.
    line: str = field(repr=False)  #: The signed line. ``isolet audit verify`` checks a file of them.

    @classmethod
    def from_json(cls, line: str) -> AuditEntry:
        """Parse one line of the log."""
        body = json.loads(line)
        return cls(
            body["seq"], _parse_time(body["ts"]), body["sandbox_id"], body["event"], body["data"], line
        )
