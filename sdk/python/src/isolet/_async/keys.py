"""API keys of a tenant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import calls
from ..key_models import ApiKey, CreatedApiKey, CurrentApiKey
from ..values import Duration

if TYPE_CHECKING:
    from .client import AsyncConnection


class AsyncKeys:
    """Methods of a client for API keys."""

    _connection: AsyncConnection

    async def keys(self) -> list[ApiKey]:
        """List the API keys of the client's tenant, including revoked ones, without their secrets."""
        body = await self._connection.json(calls.call("GET", "/v1/keys", repeatable=True))
        return [ApiKey.from_json(one) for one in body]

    async def current_key(self) -> CurrentApiKey:
        """Read id, tenant and rights of the client's own key."""
        call = calls.call("GET", "/v1/keys/current", repeatable=True)
        return CurrentApiKey.from_json(await self._connection.json(call))

    async def create_key(
        self, *, label: str | None = None, read_only: bool = False, ttl: Duration | None = None
    ) -> CreatedApiKey:
        """Create another API key of the client's tenant.

        Args:
            label: a name by which people recognise the key, at most 200 bytes.
            read_only: allow only calls that read.
            ttl: lifetime in seconds, or text such as ``"30d"``; that of the client's key by default.

        Returns:
            the key with its secret, which no other answer contains.
        """
        call = calls.create_key(label, read_only, ttl)
        return CreatedApiKey.from_json(await self._connection.json(call))

    async def revoke_key(self, id: str) -> None:
        """Revoke an API key. The server ends its connections.

        Args:
            id: id of the key.

        Raises:
            NotFoundError: ``no_key``.
        """
        await self._connection.send(calls.call("DELETE", calls.key_path(id)))
