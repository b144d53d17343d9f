"""Network rules of a sandbox."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from .. import calls
from ..network_models import Credential, CredentialInfo, Denied, NetworkInfo, NetworkRules

if TYPE_CHECKING:
    from .client import AsyncConnection


class AsyncNetwork:
    """Methods of a sandbox for its network rules."""

    _connection: AsyncConnection

    async def _ready_path(self) -> str:
        raise NotImplementedError

    async def network(self) -> NetworkInfo:
        """Read the network configuration."""
        return NetworkInfo.from_json(await self._connection.json(calls.network(await self._ready_path())))

    async def change_network(
        self,
        network: str | NetworkRules | None = None,
        *,
        network_profile: str | None = None,
        allow_add: Iterable[str | Denied] = (),
        allow_remove: Iterable[str] = (),
        deny_add: Iterable[str] = (),
        deny_remove: Iterable[str] = (),
        credentials_add: Iterable[Credential] = (),
        credentials_remove: Iterable[str | CredentialInfo] = (),
    ) -> NetworkInfo:
        """Change network rules and credentials atomically. Arguments that are not given change nothing.

        The new rules apply at once: open connections that they forbid are closed. Repeating the call has no
        further effect.

        Args:
            network: ``none``, ``open`` or rules, replacing the current configuration.
            network_profile: replace the rules with those of a network profile.
            allow_add: rules to allow, or entries of a command's ``denied``.
            allow_remove: rules to remove from ``allow``.
            deny_add: rules to deny.
            deny_remove: rules to remove from ``deny``.
            credentials_add: credentials to inject; each replaces an existing one for the same host and
                header.
            credentials_remove: a host, to remove all its credentials, or one entry of
                ``network().credentials``.

        Returns:
            the new configuration.

        Raises:
            BadRequestError: ``bad_field``: invalid rule, or a rule in ``allow_add`` that would have no
                effect because ``deny`` or the server denies the destination.

        Example:
            result = await sandbox.exec("curl -sS https://example.com")
            await sandbox.change_network(allow_add=result.denied)
        """
        call = calls.change_network(
            await self._ready_path(),
            network,
            network_profile,
            allow_add,
            allow_remove,
            deny_add,
            deny_remove,
            credentials_add,
            credentials_remove,
        )
        return NetworkInfo.from_json(await self._connection.json(call))
