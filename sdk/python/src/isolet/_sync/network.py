"""Where a sandbox may connect to."""
# Made by tools/make_sync.py from its async twin: change that one.

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from .. import calls
from ..models import Credential, CredentialInfo, Denied, NetworkInfo, NetworkRules

if TYPE_CHECKING:
    from .client import Connection


class Network:
    """The network of a sandbox."""

    _connection: Connection

    def _at(self) -> str:
        raise NotImplementedError

    def network(self) -> NetworkInfo:
        """Where it may connect to."""
        return NetworkInfo.of(self._connection.json(calls.network(self._at())))

    def change_network(
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
        """Changes where it may connect to, all of it or nothing, also for connections that run: what the
        new rules forbid is cut. Done twice it is as done once; what is not told stays.

        Args:
            network: ``none``, ``open`` or rules, in place of the network that is.
            network_profile: the rules of this profile, in place of those that are.
            allow_add: also allowed: rules, or what a command's ``denied`` told.
            allow_remove: rules of ``allow`` that go.
            deny_add: also refused.
            deny_remove: rules of ``deny`` that go.
            credentials_add: also put into its requests, for the same place instead of the one before.
            credentials_remove: put in no longer: all of a host, or one as :meth:`network` tells it.

        Raises:
            BadRequestError: ``bad_field``: no rule; or refused by a rule of ``deny``, or closed to every
                sandbox: allowing it would not open it.
        """
        call = calls.change_network(
            self._at(),
            network,
            network_profile,
            allow_add,
            allow_remove,
            deny_add,
            deny_remove,
            credentials_add,
            credentials_remove,
        )
        return NetworkInfo.of(self._connection.json(call))
