"""Sessions of ``/v1/sessions``, which are addressed by their id alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from .models import FileAccess, time_from_ms


@dataclass(frozen=True)
class TenantSession:
    """A session that is addressed by its id alone, in any sandbox of the tenant."""

    id: str  #: ``sess_`` followed by 12 hexadecimal digits.
    sandbox_id: str
    status: str  #: Always ``ready``.
    busy: bool  #: A command or program of the session is running.
    persistent: bool  #: Does not expire when idle.
    ttl: int  #: Lifetime in seconds, from creation.
    file_access: FileAccess
    metadata: Mapping[str, Any]
    created_at: datetime
    last_activity: datetime  #: Start or end of the latest command.

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> TenantSession:
        """Parse the server's JSON."""
        access = body["file_access"]
        return cls(
            id=body["id"],
            sandbox_id=body["sandbox_id"],
            status=body["status"],
            busy=body["busy"],
            persistent=body["persistent"],
            ttl=body["ttl"],
            file_access=FileAccess(tuple(access.get("read", ())), tuple(access.get("write", ()))),
            metadata=body["metadata"],
            created_at=time_from_ms(body["created_at"] * 1000),
            last_activity=time_from_ms(body["last_activity"] * 1000),
        )
