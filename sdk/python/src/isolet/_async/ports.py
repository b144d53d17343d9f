"""The ports of a sandbox: who listens, links that lead there, and requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import httpx

from .. import calls
from ..models import ExposedPort, ListeningPort, PortLink
from ..values import Duration
from .dial import AsyncPortConnection

if TYPE_CHECKING:
    from .client import AsyncConnection


class AsyncPorts:
    """The ports of a sandbox."""

    _connection: AsyncConnection

    async def _at(self) -> str:
        raise NotImplementedError

    async def ports(self) -> list[ListeningPort]:
        """The ports on which something listens, sorted. None of a sandbox that sleeps, which stays asleep."""
        told = await self._connection.json(calls.ports(await self._at()))
        return [ListeningPort.of(one) for one in told]

    async def expose_port(
        self, port: int, *, name: str | None = None, ttl: Duration | None = None
    ) -> PortLink:
        """Makes a link to a port, for those who have no key: a browser, a webhook.

        Args:
            port: 1 to 65535. Nothing needs to listen there yet.
            name: what the port is called in the list, at most 128 bytes.
            ttl: seconds that the link lives, or ``"10m"``; an hour unless told, at most 30 days.
        """
        return PortLink.of(await self._connection.json(calls.expose(await self._at(), port, name, ttl)))

    async def unexpose_port(self, port: int) -> None:
        """Ends all links to a port.

        Raises:
            NotFoundError: ``no_link``: none leads there.
        """
        await self._connection.send(calls.unexpose(await self._at(), port))

    async def exposed_ports(self) -> list[ExposedPort]:
        """The ports that links lead to, sorted."""
        told = await self._connection.json(calls.links(await self._at()))
        active = {one.port for one in await self.ports()}
        return [ExposedPort.of(one, one["port"] in active) for one in told]

    async def connect_port(self, port: int) -> AsyncPortConnection:
        """Opens a TCP connection to the program on a port, also on the sandbox's loopback alone.

        Raises:
            ServerError: ``not_listening``: nothing does there.
        """
        return await AsyncPortConnection.open(self._connection, await self._at(), port)

    async def fetch_port(
        self,
        port: int,
        path: str = "/",
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        content: str | bytes | None = None,
    ) -> httpx.Response:
        """Sends a request to the program on a port, by the key. The answer is the program's, whatever its
        status; redirects are not followed.

        Args:
            port: 1 to 65535, also of a program that listens on the sandbox's loopback alone.
            path: and query, as the program is to hear them.
            method: of the request.
            headers: what the program hears; it never hears the key.
            content: the request's body.

        Raises:
            UnreachableError: the server does not answer, or the program takes longer than the client's
                ``timeout``.

        A status of 502 is the server's own where nothing listens on the port.
        """
        target = calls.port_target(await self._at(), port, path)
        return await self._connection.hand_on(method, target, headers, content)
