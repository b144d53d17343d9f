"""What a tenant's sandboxes have used, and what was done to them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


@dataclass(frozen=True)
class AccountUsage:
    """What the sandboxes of a tenant have used, also those that are gone."""

    active_sandboxes: int  #: That are there.
    ended_sandboxes: int  #: That have ended.
    cpu_seconds: float  #: Processor time of all.
    memory_mib_seconds: float  #: Memory that they might use, in MiB, times how long they were awake.
    as_of: datetime

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> AccountUsage:
        """Reads it from JSON."""
        return cls(
            active_sandboxes=told["active_sandboxes"],
            ended_sandboxes=told["history_sandboxes"],
            cpu_seconds=told["cpu_seconds"],
            memory_mib_seconds=told["mem_seconds"],
            as_of=_moment(told["as_of"]),
        )


@dataclass(frozen=True)
class AuditEntry:
    """An entry of the audit log: who did what, from where and when, or what the server did by itself."""

    seq: int  #: Its number in the tenant's log, from 1, without gaps.
    at: datetime
    sandbox: str | None  #: ``None``: done to no sandbox, or to several.
    event: str  #: As ``sandbox.create``, ``exec.start`` or ``sandbox.slept``.
    data: Mapping[str, Any]  #: Who (``key``), from where (``from``), which call, and what its path names.
    line: str = field(repr=False)  #: As it was signed: ``isolet audit verify`` takes a file of these.

    @classmethod
    def of(cls, line: str) -> AuditEntry:
        """Reads a line of the log."""
        told = json.loads(line)
        return cls(told["seq"], _moment(told["ts"]), told["sandbox_id"], told["event"], told["data"], line)
