"""The ports of a sandbox: who listens, links that lead there, and requests."""
# Made by tools/make_sync.py from its async twin: change that one.

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import httpx

from .. import calls
from ..models import ExposedPort, ListeningPort, PortLink
from ..values import Duration
from .dial import PortConnection

if TYPE_CHECKING:
    from .client import Connection


class Ports:
    """The ports of a sandbox."""

    _connection: Connection

    def _at(self) -> str:
        raise NotImplementedError

    def ports(self) -> list[ListeningPort]:
        """The ports on which something listens, sorted. None of a sandbox that sleeps, which stays asleep."""
        told = self._connection.json(calls.ports(self._at()))
        return [ListeningPort.of(one) for one in told]

    def expose_port(
        self, port: int, *, name: str | None = None, ttl: Duration | None = None
    ) -> PortLink:
        """Makes a link to a port, for those who have no key: a browser, a webhook.

        Args:
            port: 1 to 65535. Nothing needs to listen there yet.
            name: what the port is called in the list, at most 128 bytes.
            ttl: seconds that the link lives, or ``"10m"``; an hour unless told, at most 30 days.
        """
        return PortLink.of(self._connection.json(calls.expose(self._at(), port, name, ttl)))

    def unexpose_port(self, port: int) -> None:
        """Ends all links to a port.

        Raises:
            NotFoundError: ``no_link``: none leads there.
        """
        self._connection.send(calls.unexpose(self._at(), port))

    def exposed_ports(self) -> list[ExposedPort]:
        """The ports that links lead to, sorted."""
        told = self._connection.json(calls.links(self._at()))
        active = {one.port for one in self.ports()}
        return [ExposedPort.of(one, one["port"] in active) for one in told]

    def connect_port(self, port: int) -> PortConnection:
        """Opens a TCP connection to the program on a port, also on the sandbox's loopback alone.

        Raises:
            ServerError: ``not_listening``: nothing does there.
        """
        return PortConnection.open(self._connection, self._at(), port)

    def fetch_port(
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
        target = calls.port_target(self._at(), port, path)
        return self._connection.hand_on(method, target, headers, content)
