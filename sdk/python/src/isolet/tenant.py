"""Sessions that a tenant keeps across its sandboxes, as their records have them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from .models import FileAccess, moment


@dataclass(frozen=True)
class TenantSession:
    """A session of ``/v1/sessions``."""

    id: str  #: ``sess_`` and 12 hexadecimal digits.
    sandbox_id: str
    status: str  #: ``ready``.
    busy: bool  #: A command or program of it is running.
    persistent: bool  #: It does not end for want of commands.
    ttl: int  #: Seconds from its creation to its end.
    file_access: FileAccess
    metadata: Mapping[str, Any]
    created_at: datetime
    last_activity: datetime  #: Last begin or end of a command.

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> TenantSession:
        """Reads it from JSON."""
        access = told["file_access"]
        return cls(
            id=told["id"],
            sandbox_id=told["sandbox_id"],
            status=told["status"],
            busy=told["busy"],
            persistent=told["persistent"],
            ttl=told["ttl"],
            file_access=FileAccess(tuple(access.get("read", ())), tuple(access.get("write", ()))),
            metadata=told["metadata"],
            created_at=moment(told["created_at"] * 1000),
            last_activity=moment(told["last_activity"] * 1000),
        )
