"""Nodes of a fleet."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .. import calls
from ..node_models import DrainProgress, Node, NodeList
from ..values import Duration
from . import io

if TYPE_CHECKING:
    from .client import AsyncConnection

#: Time between two reads of a drain's progress, in seconds.
_DRAIN_POLL_S = 1.0

#: Callback for the progress of a drain.
OnProgress = Callable[[DrainProgress], object]


class AsyncNodes:
    """Methods of a client for the nodes of a fleet.

    All but ``nodes`` and ``node`` need a key of the tenant ``default``. A server without a fleet answers them
    with ``not_a_fleet``.
    """

    _connection: AsyncConnection

    async def nodes(self) -> NodeList:
        """List the nodes of the fleet."""
        call = calls.call("GET", "/v1/nodes", repeatable=True)
        return NodeList.from_json(await self._connection.json(call))

    async def node(self, name: str) -> Node:
        """Read a node and what it owns.

        Args:
            name: name of the node.

        Raises:
            NotFoundError: ``no_node``.
        """
        call = calls.call("GET", calls.node_path(name), repeatable=True)
        return Node.from_json(await self._connection.json(call))

    async def cordon_node(self, name: str) -> Node:
        """Exclude a node from placement. Its sandboxes stay.

        Args:
            name: name of the node.

        Raises:
            NotFoundError: ``no_node``.
        """
        call = calls.call("POST", f"{calls.node_path(name)}/cordon", repeatable=True)
        return Node.from_json(await self._connection.json(call))

    async def uncordon_node(self, name: str) -> Node:
        """Let placement use a node again.

        Args:
            name: name of the node.

        Raises:
            NotFoundError: ``no_node``.
        """
        call = calls.call("POST", f"{calls.node_path(name)}/uncordon", repeatable=True)
        return Node.from_json(await self._connection.json(call))

    async def start_drain(self, name: str, *, timeout: Duration | None = None) -> DrainProgress:
        """Cordon a node and start to move its sandboxes to others, without waiting for the end.

        Args:
            name: name of the node.
            timeout: time after which no further move begins, in seconds or as text such as ``"10m"``.

        Returns:
            the progress so far; :meth:`drain_progress` reads it again.
        """
        return DrainProgress.from_json(await self._connection.json(calls.drain(name, timeout)))

    async def drain_progress(self, name: str) -> DrainProgress:
        """Read how far the latest drain of a node is.

        Args:
            name: name of the node.
        """
        call = calls.call("GET", f"{calls.node_path(name)}/drain", repeatable=True)
        return DrainProgress.from_json(await self._connection.json(call))

    async def drain_node(
        self, name: str, *, timeout: Duration | None = None, on_progress: OnProgress | None = None
    ) -> DrainProgress:
        """Cordon a node, move its sandboxes to others, and wait for the end.

        Args:
            name: name of the node.
            timeout: time after which no further move begins, in seconds or as text such as ``"10m"``.
            on_progress: called with the progress about once a second.

        Returns:
            the result: ``left`` names the sandboxes that could not be moved.

        Example:
            done = await client.drain_node("node-1", timeout="10m")
            print(done.moved, done.left)
        """
        progress = await self.start_drain(name, timeout=timeout)
        while True:
            if on_progress is not None:
                on_progress(progress)
            if not progress.running:
                return progress
            await io.sleep(_DRAIN_POLL_S)
            progress = await self.drain_progress(name)
