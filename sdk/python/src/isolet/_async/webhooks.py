"""Webhooks of a tenant."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from .. import calls
from ..webhook_models import CreatedWebhook, Webhook, WebhookTest

if TYPE_CHECKING:
    from .client import AsyncConnection


class AsyncWebhooks:
    """Methods of a client for webhooks: URLs that the server tells about sandboxes."""

    _connection: AsyncConnection

    async def webhooks(self) -> list[Webhook]:
        """List the webhooks of the client's tenant, with the state of their deliveries."""
        body = await self._connection.json(calls.call("GET", "/v1/webhooks", repeatable=True))
        return [Webhook.from_json(one) for one in body]

    async def webhook(self, id: str) -> Webhook:
        """Read a webhook and the state of its deliveries.

        Raises:
            NotFoundError: ``no_webhook``.
        """
        call = calls.call("GET", calls.webhook_path(id), repeatable=True)
        return Webhook.from_json(await self._connection.json(call))

    async def create_webhook(
        self,
        url: str,
        *,
        events: Iterable[str] | None = None,
        sandbox: str | None = None,
        label: str | None = None,
    ) -> CreatedWebhook:
        """Let the server send an HTTP POST for each event from now on.

        Args:
            url: where events are sent to. It must lead to a public address unless the operator allows others.
            events: names such as ``"sandbox.failed"``, or patterns; ``"sandbox.*"`` by default.
            sandbox: send the events of this sandbox only.
            label: a name by which people recognise the webhook, at most 200 bytes.

        Returns:
            the webhook with the secret that verifies signatures; no other answer contains it.
        """
        call = calls.create_webhook(url, events, sandbox, label)
        return CreatedWebhook.from_json(await self._connection.json(call))

    async def update_webhook(
        self,
        id: str,
        *,
        url: str | None = None,
        events: Iterable[str] | None = None,
        enabled: bool | None = None,
    ) -> Webhook:
        """Change a webhook. Arguments that are left out stay as they are.

        Args:
            id: id of the webhook.
            url: where events are sent to.
            events: the events that it receives.
            enabled: whether events are sent. ``True`` also starts deliveries that the server has stopped,
                with the first event that was not delivered.

        Raises:
            NotFoundError: ``no_webhook``.
        """
        call = calls.update_webhook(id, url, events, enabled)
        return Webhook.from_json(await self._connection.json(call))

    async def delete_webhook(self, id: str) -> None:
        """Delete a webhook. Events that were not delivered are dropped.

        Raises:
            NotFoundError: ``no_webhook``.
        """
        await self._connection.send(calls.call("DELETE", calls.webhook_path(id)))

    async def rotate_webhook(self, id: str) -> CreatedWebhook:
        """Replace the secret of a webhook. The old one signs for another 24 hours.

        Returns:
            the webhook with its new secret.

        Raises:
            NotFoundError: ``no_webhook``.
        """
        call = calls.call("POST", f"{calls.webhook_path(id)}/rotate")
        return CreatedWebhook.from_json(await self._connection.json(call))

    async def test_webhook(self, id: str) -> WebhookTest:
        """Send one event ``webhook.test`` now.

        Returns:
            the status of the receiver, or why there is none.

        Raises:
            NotFoundError: ``no_webhook``.
        """
        call = calls.call("POST", f"{calls.webhook_path(id)}/test")
        return WebhookTest.from_json(await self._connection.json(call))
