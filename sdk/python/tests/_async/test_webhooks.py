"""Webhooks."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from isolet import AsyncIsolet, NotFoundError, RefusedError

pytestmark = pytest.mark.anyio

#: A receiver that does not exist.
URL = "https://receiver.invalid/hook"


async def test_a_webhook_is_created_tested_changed_and_deleted(
    client: AsyncIsolet, fresh: Callable[[], str]
) -> None:
    label = fresh()
    made = await client.create_webhook(URL, events=["sandbox.failed"], sandbox="a", label=label)
    assert made.secret.startswith("whsec_")
    assert made.secret not in repr(made)
    assert (made.url, made.events, made.sandbox, made.label) == (URL, ("sandbox.failed",), "a", label)
    assert (made.enabled, made.delivery.delivered, made.delivery.disabled_reason) == (True, 0, None)
    assert [one.id for one in await client.webhooks() if one.label == label] == [made.id]

    tested = await client.test_webhook(made.id)
    assert tested.status is None
    assert tested.error is not None
    assert "receiver.invalid" in tested.error

    changed = await client.update_webhook(made.id, events=["*"], enabled=False)
    assert (changed.url, changed.events, changed.enabled) == (URL, ("*",), False)
    # `pending` counts the events of other tests.
    known = await client.webhook(made.id)
    assert (known.id, known.url, known.events, known.enabled) == (made.id, URL, ("*",), False)
    rotated = await client.rotate_webhook(made.id)
    assert rotated.secret != made.secret
    assert rotated.previous_secret_until is not None

    with pytest.raises(RefusedError, match="allow_networks"):
        await client.create_webhook("http://169.254.169.254/")
    await client.delete_webhook(made.id)
    with pytest.raises(NotFoundError):
        await client.webhook(made.id)
