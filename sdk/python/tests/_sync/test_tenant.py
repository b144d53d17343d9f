"""Sessions that a tenant keeps across its sandboxes."""
# Made by tools/make_sync.py from its async twin: change that one.

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest
from relay import Relay
from server import Server

from isolet import Isolet, BadRequestError, FileAccess, NotFoundError

pytestmark = pytest.mark.anyio


def test_a_session_is_found_by_its_id_alone(client: Isolet, fresh: Callable[[], str]) -> None:
    session = client.create_session(
        sandbox=fresh(), persistent=True, ttl="1h", metadata={"for": "tests"}
    )
    assert session.id.startswith("sess_")
    assert (session.exec("x=5; cd /tmp; echo $x")).stdout == "5\n"
    again = client.find_session(session.id)
    assert (again.sandbox_id, (again.exec("echo $x; pwd")).stdout) == (session.sandbox_id, "5\n/tmp\n")
    with again.shell() as shell:
        assert (shell.run("echo $x")).stdout == "5\n"
    again.write_file("a.txt", "a")
    assert session.read_file("a.txt") == "a"
    info = client.session_info(session.id)
    assert (info.id, info.sandbox_id, info.status, info.busy) == (
        session.id,
        session.sandbox_id,
        "ready",
        False,
    )
    assert (info.persistent, info.ttl, info.metadata) == (True, 3600, {"for": "tests"})
    assert info.created_at <= info.last_activity
    assert session.id in [one.id for one in client.sessions(page=1)]
    client.delete_session(session.id)
    for gone in (client.find_session, client.delete_session):
        with pytest.raises(NotFoundError) as raised:
            gone(session.id)
        assert raised.value.code == "no_session"
    client.sandbox(session.sandbox_id).delete()


def test_a_session_sees_what_it_was_granted(client: Isolet, fresh: Callable[[], str]) -> None:
    with client.sandbox(fresh()) as sandbox:
        sandbox.write_file("docs/a.txt", "a")
        sandbox.write_file("secret.txt", "s")
        granted = FileAccess(read=["docs"], write=["out"])
        session = client.create_session(sandbox=sandbox.id, file_access=granted)
        assert (session.exec("ls; cat docs/a.txt; echo o >out/o")).stdout == "docs\nout\na"
        with pytest.raises(NotFoundError):
            session.read_file("secret.txt")
        assert (client.session_info(session.id)).file_access == FileAccess(("docs",), ("out",))
        session.delete()
        with pytest.raises(NotFoundError):
            client.session_info(session.id)


def test_sessions_are_ended_in_bulk(client: Isolet, fresh: Callable[[], str]) -> None:
    with client.sandbox(fresh()) as sandbox:
        made = [client.create_session(sandbox=sandbox.id) for _ in range(3)]
        made[0].exec("true")
        with pytest.raises(BadRequestError):
            client.delete_sessions()
        assert client.delete_sessions(idle=True, older_than="1h") == 0
        assert client.delete_sessions(idle=True, older_than=0) >= 3
        left = [one.id for one in client.sessions()]
        assert not {one.id for one in made} & set(left)


def test_a_create_whose_answer_is_lost_makes_one(server: Server, relay: Relay) -> None:
    mark = uuid.uuid4().hex
    with Isolet(relay.url) as client:
        relay.cut_answers = 1
        session = client.create_session(metadata={"mark": mark})
        assert relay.cut_answers == 0
        made = [one.id for one in client.sessions() if one.metadata == {"mark": mark}]
        assert made == [session.id]
        client.delete_session(session.id)
