"""Webhooks of a tenant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from .models import optional_time, time_from_ms


@dataclass(frozen=True)
class WebhookDelivery:
    """How far the deliveries of a webhook are."""

    delivered: int  #: Events that the receiver has taken.
    pending: int  #: Entries of the audit log behind the last event that was delivered.
    failures: int  #: Failed attempts in a row.
    last_status: int | None  #: Status of the last answer; ``None``: there was none.
    last_error: str | None  #: Why the last attempt failed; ``None``: it did not.
    last_attempt: datetime | None
    next_attempt: datetime | None  #: ``None``: with the next event.
    #: Why the server has stopped: ``failing``, ``gone`` or ``key_changed``; ``None``: it has not.
    disabled_reason: str | None
    disabled_at: datetime | None

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> WebhookDelivery:
        """Parse the server's JSON."""
        disabled = body.get("disabled") or {}
        return cls(
            delivered=body["delivered"],
            pending=body["pending"],
            failures=body["failures"],
            last_status=body.get("last_status"),
            last_error=body.get("last_error"),
            last_attempt=optional_time(body.get("last_attempt_ms")),
            next_attempt=optional_time(body.get("next_attempt_ms")),
            disabled_reason=disabled.get("reason"),
            disabled_at=optional_time(disabled.get("at_ms")),
        )


@dataclass(frozen=True)
class Webhook:
    """A URL that the server tells about the tenant's sandboxes, without its secret."""

    id: str
    url: str
    events: tuple[str, ...]  #: Names and patterns such as ``sandbox.*``.
    sandbox: str | None  #: The only sandbox whose events it receives; ``None``: all.
    label: str  #: The owner's name for it.
    enabled: bool  #: Whether its owner wants events.
    created_at: datetime
    previous_secret_until: datetime | None  #: Until when the secret before a rotation signs too.
    delivery: WebhookDelivery

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Webhook:
        """Parse the server's JSON."""
        return cls(**_fields(body))


@dataclass(frozen=True)
class CreatedWebhook(Webhook):
    """A webhook with a new secret, which no other answer contains."""

    secret: str = field(repr=False)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> CreatedWebhook:
        """Parse the server's JSON."""
        return cls(**_fields(body), secret=body["secret"])


@dataclass(frozen=True)
class WebhookTest:
    """How a test of a webhook ended."""

    status: int | None  #: Status of the receiver's answer; ``None``: there was none.
    error: str | None  #: Why the attempt failed; ``None``: the receiver answered with 2xx.
    duration_ms: int

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> WebhookTest:
        """Parse the server's JSON."""
        return cls(status=body.get("status"), error=body.get("error"), duration_ms=body["duration_ms"])


def _fields(body: Mapping[str, Any]) -> dict[str, Any]:
    fields = {name: body[name] for name in ("id", "url", "label", "enabled")}
    return fields | {
        "events": tuple(body["events"]),
        "sandbox": body.get("sandbox"),
        "created_at": time_from_ms(body["created_at_ms"]),
        "previous_secret_until": optional_time(body.get("previous_secret_until_ms")),
        "delivery": WebhookDelivery.from_json(body["delivery"]),
    }
