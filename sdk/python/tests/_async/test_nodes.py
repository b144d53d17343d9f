"""Nodes of a fleet, and moves between them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from one_node import NODE, OneNode

from isolet import AsyncIsolet, AsyncSandbox, DrainProgress, NotFoundError, RefusedError, ServerError
from isolet._async import io

pytestmark = pytest.mark.anyio


async def created(client: AsyncIsolet, id: str) -> AsyncSandbox:
    """Create a sandbox as soon as placement has seen that the node is no longer cordoned."""
    for _ in range(400):
        try:
            return await client.create_sandbox(id)
        except ServerError as error:
            if error.code != "fleet_full":
                raise
        await io.sleep(0.05)
    raise RuntimeError("the node takes no sandbox")


async def test_a_node_is_listed_cordoned_and_uncordoned(one_node: OneNode) -> None:
    async with AsyncIsolet(one_node.url, one_node.key) as client:
        fleet = await client.nodes()
        assert (fleet.here, fleet.is_current) == (NODE, True)
        assert [(node.name, node.cordoned) for node in fleet.nodes] == [(NODE, False)]
        assert (await client.cordon_node(NODE)).cordoned
        assert (await client.node(NODE)).cordoned
        assert not (await client.uncordon_node(NODE)).cordoned
        assert not (await client.node(NODE)).cordoned
        with pytest.raises(NotFoundError) as missing:
            await client.cordon_node("never-was")
        assert missing.value.code == "no_node"


async def test_a_drain_reports_what_it_could_not_move(one_node: OneNode, fresh: Callable[[], str]) -> None:
    async with AsyncIsolet(one_node.url, one_node.key) as client:
        async with await created(client, fresh()) as sandbox:
            await sandbox.exec("true")
            seen: list[DrainProgress] = []
            done = await client.drain_node(NODE, timeout=30, on_progress=seen.append)
            assert (done.node, done.running, done.moved, done.remaining) == (NODE, False, 0, 1)
            assert [one.sandbox for one in done.left] == [f"default/{sandbox.id}"]
            assert seen[-1] == done == await client.drain_progress(NODE)
            assert (await client.node(NODE)).cordoned
        assert not (await client.uncordon_node(NODE)).cordoned


async def test_a_move_that_the_fleet_refuses_leaves_the_sandbox_as_it_is(
    one_node: OneNode, fresh: Callable[[], str]
) -> None:
    async with AsyncIsolet(one_node.url, one_node.key) as client:
        sandbox = await created(client, fresh())
        await sandbox.exec("echo kept > f")
        assert (await sandbox.info()).node == NODE
        with pytest.raises(RefusedError) as refused:
            await sandbox.move(node="never-was")
        # A move copies the files through the store, which this fleet does not have.
        assert refused.value.code == "no_snapshot_store"
        assert await sandbox.read_file("f") == "kept\n"
        await sandbox.delete()


async def test_a_server_without_a_fleet_has_no_nodes(client: AsyncIsolet) -> None:
    with pytest.raises(RefusedError) as refused:
        await client.nodes()
    assert refused.value.code == "not_a_fleet"
