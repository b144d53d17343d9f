"""Sandbox events, and the client's behaviour on errors and lost connections."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from relay import Relay
from server import KEY, Server, free_port

from isolet import (
    AsyncIsolet,
    AsyncSandbox,
    BadRequestError,
    IsoletError,
    SandboxEvent,
    UnauthorizedError,
    UnreachableError,
    UsageError,
)
from isolet._async import io

pytestmark = pytest.mark.anyio


async def test_a_sandboxs_events_come_in_order_up_to_its_end(
    client: AsyncIsolet, fresh: Callable[[], str]
) -> None:
    sandbox = client.sandbox(fresh())
    await sandbox.exec("true")
    async with sandbox.events() as events:
        await sandbox.exec("exit 3", session="dev")
        await sandbox.sleep()
        await sandbox.delete()
        all_of_it = [event async for event in events]
    assert {event.sandbox for event in all_of_it} == {sandbox.id}
    types = [event.type for event in all_of_it]
    assert types[-1] == "destroyed"
    assert types.index("session_created") < types.index("command_started") < types.index("sleeping")
    exited = next(event for event in all_of_it if event.type == "command_exited")
    assert (exited.session, exited.code) == ("dev", 3)
    ids = [event.id for event in all_of_it if event.id is not None]
    assert ids == sorted(set(ids))


# Promises: Y6.
async def test_events_continue_after_the_last_one(
    server: Server, relay: Relay, fresh: Callable[[], str]
) -> None:
    async with AsyncIsolet(relay.url) as client, AsyncIsolet() as direct:
        sandbox = direct.sandbox(fresh())
        await sandbox.exec("true")
        received: list[SandboxEvent] = []
        async with client.events(after=0) as events:
            async for event in events:
                if event.sandbox == sandbox.id:
                    received.append(event)
                else:
                    continue
                if event.type == "command_exited" and event.code == 0:
                    # The next events happen while the client is disconnected.
                    relay.cut()
                    await sandbox.exec("exit 3")
                elif event.type == "command_exited" and event.code == 3:
                    await sandbox.delete()
                elif event.type == "destroyed":
                    break
            last = events.after
        ids = [event.id for event in received]
        assert len(ids) == len(set(ids))
        codes = [event.code for event in received if event.type == "command_exited"]
        assert codes[:2] == [0, 3]
        assert last == received[-1].id


# Promises: Y6.
async def test_a_connection_lost_before_the_first_event_yields_a_gap(
    server: Server, relay: Relay, sandbox: AsyncSandbox
) -> None:
    async with AsyncIsolet(relay.url) as client, client.events() as events:
        relay.cut()
        event = await events.__anext__()
        assert (event.type, event.id, event.missed) == ("gap", None, None)
        await sandbox.exec("true")
        assert (await events.__anext__()).sandbox is not None


async def test_events_are_closed_in_the_middle_of_a_wait(client: AsyncIsolet, sandbox: AsyncSandbox) -> None:
    events = await client.events().open()
    received: list[str] = []

    async def read() -> None:
        async for event in events:
            received.append(event.type)

    reader = io.Task(read)
    await sandbox.exec("true")
    while not received:
        await io.sleep(0.01)
    await events.close()
    await reader.join()
    assert [event async for event in events] == []


async def test_a_wrong_key_no_server_and_wrong_arguments_raise(client: AsyncIsolet, server: Server) -> None:
    async with AsyncIsolet(api_key="wrong") as wrong:
        with pytest.raises(UnauthorizedError) as refused:
            await wrong.sandbox("a").exec("true")
        assert refused.value.status == 401
    nowhere = f"http://127.0.0.1:{free_port()}"
    async with AsyncIsolet(nowhere, "k") as alone:
        with pytest.raises(UnreachableError) as unreachable:
            await alone.sandbox("a").exec("true")
        assert (unreachable.value.code, unreachable.value.status) == ("unreachable", 0)
        assert nowhere in str(unreachable.value)
        with pytest.raises(UnreachableError):
            await alone.sandbox("a").shell().open()
    for name in ("../x", "..", "a/b", ""):
        with pytest.raises(IsoletError) as named:
            await client.sandbox(name).exec("true")
        assert named.value.status in (400, 404, 405)
    with pytest.raises(BadRequestError) as field:
        await client.create_sandbox(memory_mib=-1)
    assert "memory_mib" in field.value.message
    for url in ("ftp://x", "127.0.0.1:7300", "http://user:key@127.0.0.1:1", "http://h?x=1"):
        with pytest.raises(UsageError):
            AsyncIsolet(url, "k")


# Promises: Y1.
async def test_a_client_that_reconnects_is_not_rejected(server: Server, relay: Relay) -> None:
    async with AsyncIsolet(relay.url) as client:
        relay.cut_answers = 2
        assert all([info.id async for info in client.sandboxes()])
        assert relay.connections == 3
        relay.cut_answers = 3
        with pytest.raises(UnreachableError) as cut:
            [info async for info in client.sandboxes()]
        assert cut.value.code == "cut"


async def test_the_key_of_a_server_on_this_machine_is_found(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ISOLET_API_KEY")
    monkeypatch.setenv("ISOLET_DATA_DIR", str(tmp_path))
    with pytest.raises(IsoletError, match="set ISOLET_API_KEY") as none:
        AsyncIsolet()
    assert none.value.code == "no_key"
    (tmp_path / "key").write_text(f"{KEY}\n")
    async with AsyncIsolet() as client:
        assert all([info.id async for info in client.sandboxes(page=1)])


# Promises: Y9.
async def test_the_key_is_shown_nowhere(
    server: Server, caplog: pytest.LogCaptureFixture, fresh: Callable[[], str]
) -> None:
    caplog.set_level(logging.DEBUG)
    async with AsyncIsolet() as client, client.sandbox(fresh()) as sandbox:
        async with sandbox.shell() as shell:
            await shell.run("true")
            shown = [repr(thing) for thing in (client, sandbox, shell, client._connection, vars(client))]
        shown += [repr(vars(client._connection))]
    with pytest.raises(UnauthorizedError) as refused:
        await AsyncIsolet(api_key=f"{KEY}-wrong").sandbox("a").shell().open()
    shown += [str(refused.value), repr(refused.value)]
    assert len(caplog.records) > 10
    assert not any(KEY in text for text in [*shown, caplog.text])
