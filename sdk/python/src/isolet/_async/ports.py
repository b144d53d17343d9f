"""Ports of a sandbox: listening programs, links, requests and connections."""

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
    """Methods of a sandbox for ports."""

    _connection: AsyncConnection

    async def _ready_path(self) -> str:
        raise NotImplementedError

    async def ports(self) -> list[ListeningPort]:
        """List ports on which programs listen, sorted.

        Does not wake a sleeping sandbox, whose list is empty.
        """
        answer = await self._connection.json(calls.ports(await self._ready_path()))
        return [ListeningPort.from_json(one) for one in answer]

    async def expose_port(
        self,
        port: int,
        *,
        name: str | None = None,
        ttl: Duration | None = None,
        token: str | None = None,
    ) -> PortLink:
        """Create a signed link to a port for users without a key, such as a browser or webhook.

        Args:
            port: 1 to 65535. A program may start to listen later.
            name: name of the port in lists, at most 128 bytes.
            ttl: lifetime of the link in seconds, or text such as ``"10m"``; an hour by default, at most 30
                days.
            token: a token of your choice in the URL, so that it stays the same when you create the link
                again: 16 to 64 characters of ``A-Za-z0-9_-``. Everyone who guesses it can use the port.

        Returns:
            the link. Everyone who knows its ``url`` can use the port.

        Raises:
            ConflictError: ``link_token_in_use``: another key chose this token for the port.
        """
        return PortLink.from_json(
            await self._connection.json(calls.expose(await self._ready_path(), port, name, ttl, token))
        )

    async def unexpose_port(self, port: int) -> None:
        """Revoke all links to a port.

        Args:
            port: 1 to 65535.

        Raises:
            NotFoundError: ``no_link``: the port has no links.
        """
        await self._connection.send(calls.unexpose(await self._ready_path(), port))

    async def exposed_ports(self) -> list[ExposedPort]:
        """List ports that have links, sorted."""
        answer = await self._connection.json(calls.links(await self._ready_path()))
        active = {one.port for one in await self.ports()}
        return [ExposedPort.from_json(one, one["port"] in active) for one in answer]

    async def connect_port(self, port: int) -> AsyncPortConnection:
        """Open a TCP connection to the program on a port, including ports that are bound to the sandbox's
        loopback only.

        Args:
            port: 1 to 65535.

        Returns:
            the open connection.

        Raises:
            ServerError: ``not_listening``: no program listens on the port.
        """
        return await AsyncPortConnection.open(self._connection, await self._ready_path(), port)

    async def fetch_port(
        self,
        port: int,
        path: str = "/",
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        content: str | bytes | None = None,
    ) -> httpx.Response:
        """Send an HTTP request to the program on a port. Redirects are not followed.

        Args:
            port: 1 to 65535; the program may listen on the sandbox's loopback only.
            path: path and query.
            method: HTTP method.
            headers: request headers; the program never receives the API key.
            content: request body.

        Returns:
            the program's response, whatever its status. If no program listens on the port, the server
            answers with 502.

        Raises:
            UnreachableError: the server does not answer, or the program takes longer than the client's
                ``timeout``.
        """
        target = calls.port_target(await self._ready_path(), port, path)
        return await self._connection.forward(method, target, headers, content)
