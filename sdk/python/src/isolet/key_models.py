"""API keys of a tenant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from .models import optional_time


@dataclass(frozen=True)
class ApiKey:
    """An API key, without its secret."""

    id: str  #: By which the key is revoked.
    tenant: str  #: The tenant whose sandboxes the key gives access to.
    label: str  #: The owner's name for it.
    read_only: bool  #: It allows only calls that read.
    created_at: datetime
    expires_at: datetime | None  #: ``None``: never.
    last_used_at: datetime | None  #: ``None``: never.
    revoked_at: datetime | None  #: ``None``: it was not revoked.

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> ApiKey:
        """Parse the server's JSON."""
        return cls(**_fields(body))


@dataclass(frozen=True)
class CreatedApiKey(ApiKey):
    """A new key with its secret, which no other answer contains."""

    secret: str = field(repr=False)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> CreatedApiKey:
        """Parse the server's JSON."""
        return cls(**_fields(body), secret=body["secret"])


@dataclass(frozen=True)
class CurrentApiKey:
    """The key that a client uses."""

    id: str | None  #: ``None`` for the key from the environment of the server.
    tenant: str
    read_only: bool

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> CurrentApiKey:
        """Parse the server's JSON."""
        return cls(id=body.get("id"), tenant=body["tenant"], read_only=body["read_only"])


def _fields(body: Mapping[str, Any]) -> dict[str, Any]:
    times = ("created_at", "expires_at", "last_used_at", "revoked_at")
    fields = {name: body[name] for name in ("id", "tenant", "label", "read_only")}
    return fields | {name: optional_time(body.get(f"{name}_ms")) for name in times}
