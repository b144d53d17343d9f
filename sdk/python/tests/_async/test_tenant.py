"""Sessions that are addressed by their id alone."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest
from relay import Relay
from server import Server

from isolet import AsyncIsolet, BadRequestError, FileAccess, NotFoundError

pytestmark = pytest.mark.anyio


async def test_a_session_is_found_by_its_id_alone(client: AsyncIsolet, fresh: Callable[[], str]) -> None:
    session = await client.create_session(
        sandbox=fresh(), persistent=True, ttl="1h", metadata={"for": "tests"}
    )
    assert session.id.startswith("sess_")
    assert (await session.exec("x=5; cd /tmp; echo $x")).stdout == "5\n"
    again = await client.find_session(session.id)
    assert (again.sandbox_id, (await again.exec("echo $x; pwd")).stdout) == (session.sandbox_id, "5\n/tmp\n")
    async with again.shell() as shell:
        assert (await shell.run("echo $x")).stdout == "5\n"
    await again.write_file("a.txt", "a")
    assert await session.read_file("a.txt") == "a"
    # The server may learn a moment later that the shell was closed.
    while (info := await client.session_info(session.id)).busy:
        pass
    assert (info.id, info.sandbox_id, info.status) == (session.id, session.sandbox_id, "ready")
    assert (info.persistent, info.ttl, info.metadata) == (True, 3600, {"for": "tests"})
    assert info.created_at <= info.last_activity
    assert session.id in [one.id async for one in client.sessions(page=1)]
    await client.delete_session(session.id)
    for gone in (client.find_session, client.delete_session):
        with pytest.raises(NotFoundError) as raised:
            await gone(session.id)
        assert raised.value.code == "no_session"
    await client.sandbox(session.sandbox_id).delete()


async def test_a_session_sees_what_it_was_granted(client: AsyncIsolet, fresh: Callable[[], str]) -> None:
    async with client.sandbox(fresh()) as sandbox:
        await sandbox.write_file("docs/a.txt", "a")
        await sandbox.write_file("secret.txt", "s")
        granted = FileAccess(read=["docs"], write=["out"])
        session = await client.create_session(sandbox=sandbox.id, file_access=granted)
        assert (await session.exec("ls; cat docs/a.txt; echo o >out/o")).stdout == "docs\nout\na"
        with pytest.raises(NotFoundError):
            await session.read_file("secret.txt")
        assert (await client.session_info(session.id)).file_access == FileAccess(("docs",), ("out",))
        await session.delete()
        with pytest.raises(NotFoundError):
            await client.session_info(session.id)


async def test_sessions_are_ended_in_bulk(client: AsyncIsolet, fresh: Callable[[], str]) -> None:
    async with client.sandbox(fresh()) as sandbox:
        made = [await client.create_session(sandbox=sandbox.id) for _ in range(3)]
        await made[0].exec("true")
        with pytest.raises(BadRequestError):
            await client.delete_sessions()
        assert await client.delete_sessions(idle=True, older_than="1h") == 0
        # A session is busy until a moment after the answer of its command.
        ended = 0
        while ended < len(made):
            ended += await client.delete_sessions(idle=True, older_than=0)
        left = [one.id async for one in client.sessions()]
        assert not {one.id for one in made} & set(left)


async def test_a_create_whose_response_is_lost_creates_one_session(server: Server, relay: Relay) -> None:
    mark = uuid.uuid4().hex
    async with AsyncIsolet(relay.url) as client:
        relay.cut_answers = 1
        session = await client.create_session(metadata={"mark": mark})
        assert relay.cut_answers == 0
        made = [one.id async for one in client.sessions() if one.metadata == {"mark": mark}]
        assert made == [session.id]
        await client.delete_session(session.id)
