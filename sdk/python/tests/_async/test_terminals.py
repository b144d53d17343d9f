"""Terminals: output, attached clients and lost connections."""

from __future__ import annotations

import json
import re

import httpx
import pytest
from relay import Relay
from server import Server

from isolet import (
    AsyncIsolet,
    AsyncSandbox,
    NotFoundError,
    TerminalAttached,
    TerminalClients,
    TerminalClosedError,
    TerminalExit,
    TerminalOutput,
    TerminalRefused,
    TerminalSize,
    TerminalSnapshot,
    UnauthorizedError,
    UsageError,
    WaitTimeoutError,
)
from isolet._async import io

pytestmark = pytest.mark.anyio


def upgraded(url: str) -> int:
    """HTTP status of a WebSocket upgrade."""
    headers = {
        "connection": "upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA==",
    }
    with httpx.stream("GET", url, headers=headers, timeout=20) as answer:
        return answer.status_code


async def test_a_script_types_waits_for_output_and_receives_the_exit_code(sandbox: AsyncSandbox) -> None:
    async with sandbox.terminal(cols=100, rows=30) as terminal:
        await terminal.write("stty size; echo $((6*7))\n")
        assert (await terminal.wait_for(re.compile(r"\s30 100\r"))).endswith("30 100\r")
        assert "\n42\r" in await terminal.wait_for(re.compile(r"\s42\r"))
        await terminal.resize(90, 20)
        await terminal.write("stty size\n")
        await terminal.wait_for("20 90")
        with pytest.raises(WaitTimeoutError):
            await terminal.wait_for("never shown", timeout=0.05)
        with pytest.raises(UsageError):
            await terminal.resize(0, 20)
        await terminal.write("sh -c 'echo be\"\"gun; exec sleep 1000'\n")
        await terminal.wait_for("begun")
        await terminal.write("\x03")
        await terminal.wait_for("^C")
        await terminal.write("exit 5\n")
        assert await terminal.exited() == TerminalExit(5)
        assert terminal.exit == TerminalExit(5)
        with pytest.raises(TerminalClosedError) as closed:
            await terminal.write("x")
        assert closed.value.code == "exited"
        with pytest.raises(TerminalClosedError):
            await terminal.wait_for("never shown")


async def test_another_program_runs_instead_of_bash_and_its_signal_is_reported(sandbox: AsyncSandbox) -> None:
    command = ["python3", "-c", "input('name? '); import os; os.kill(os.getpid(), 15)"]
    async with sandbox.terminal(command=command) as terminal:
        await terminal.wait_for("name? ")
        await terminal.write("x\n")
        events = [event async for event in terminal]
        assert events[-1] == TerminalExit(143, "SIGTERM")
    with pytest.raises(UsageError):
        sandbox.terminal(command="python3")


async def test_output_is_iterated_with_offsets(sandbox: AsyncSandbox) -> None:
    await sandbox.write_file(
        "lines.sh", "stty -onlcr; seq 1 20000; printf '\\303'; sleep 0.05; printf '\\274'"
    )
    terminal = sandbox.terminal(command=["bash", "/workspace/lines.sh"])
    shown, texts, next_offset = b"", [], 0
    async for event in terminal:
        if isinstance(event, TerminalAttached):
            assert (event.fresh, event.reconnected, event.cols, event.rows) == (True, False, 80, 24)
            assert event.terminal == terminal.id
        elif isinstance(event, TerminalOutput):
            assert event.offset == next_offset
            next_offset += len(event.data)
            shown += event.data
            texts.append(event.text)
        assert not isinstance(event, TerminalRefused)
    assert shown.decode() == "".join(f"{number}\n" for number in range(1, 20001)) + "ü"
    assert "".join(texts) == shown.decode()
    assert terminal.offset == len(shown)
    await terminal.close()


# Promises: N10.
async def test_a_slow_reader_learns_what_it_missed(sandbox: AsyncSandbox) -> None:
    await sandbox.write_file("lines.sh", "seq 1 3000000; touch /workspace/over; read -r")
    async with sandbox.terminal(command=["bash", "/workspace/lines.sh"]) as terminal:
        # The program does not wait long for a reader: it finishes while the client reads nothing.
        while not await sandbox.exists("over"):
            await io.sleep(0.05)
        shown, missed, tail = 0, 0, ""
        async for event in terminal:
            if isinstance(event, TerminalSnapshot):
                missed += event.missed
            elif isinstance(event, TerminalOutput):
                shown += len(event.data)
            if isinstance(event, (TerminalSnapshot, TerminalOutput)):
                before, tail = tail, (tail + event.text)[-40:]
                if "3000000" in tail and "3000000" not in before:
                    await terminal.write("\n")
        # The program's lines, and the typed command.
        assert shown + missed == sum(len(f"{number}\r\n") for number in range(1, 3_000_001)) + 2
        assert missed > 0


async def test_a_viewer_watches_and_clients_see_who_is_attached(sandbox: AsyncSandbox) -> None:
    session = await sandbox.create_session("dev")
    async with session.terminal(name="editor") as editor:
        async with session.terminal(mode="view", name="viewer", cols=200, rows=50) as viewer:
            seen = None
            async for event in editor:
                if isinstance(event, TerminalClients) and len(event.clients) == 2:
                    seen = [(one.name, one.mode) for one in event.clients]
                    break
            assert seen == [("editor", "edit"), ("viewer", "view")]
            assert len(editor.clients) == 2
            with pytest.raises(UsageError) as refused:
                await viewer.write("echo no\n")
            assert refused.value.code == "view_only"
            await editor.resize(70, 20)
            await editor.write("echo se''en\n")
            sizes = []
            async for event in viewer:
                if isinstance(event, TerminalSize):
                    sizes.append((event.cols, event.rows))
                if isinstance(event, TerminalOutput) and "seen" in event.text:
                    break
            assert sizes == [(70, 20)]
        while len(editor.clients) == 2:
            await editor.__anext__()
    with pytest.raises(UsageError):
        session.terminal(mode="look")


# Promises: N10.
async def test_a_terminal_continues_at_the_same_byte_after_a_lost_connection(
    server: Server, relay: Relay
) -> None:
    async with AsyncIsolet(relay.url) as client, await client.create_sandbox() as sandbox:
        async with sandbox.terminal() as terminal:
            lines = 'for i in $(seq 1 200); do echo "line $i."; sleep 0.01; done'
            # It ends after the last cut, however late that is.
            await terminal.write(f"{lines}; until [ -e go ]; do sleep 0.01; done; exit 0\n")
            shown, again, next_offset, cuts = "", 0, None, [20, 60, 100, 140]
            async for event in terminal:
                if isinstance(event, TerminalAttached):
                    again += event.reconnected
                    if again == 4:
                        async with AsyncIsolet() as direct:
                            await direct.sandbox(sandbox.id).write_file("go", "")
                assert not isinstance(event, TerminalSnapshot)
                if isinstance(event, TerminalOutput):
                    assert next_offset in (None, event.offset)
                    next_offset = event.offset + len(event.data)
                    shown += event.text
                if cuts and f"line {cuts[0]}." in shown:
                    del cuts[0]
                    relay.cut()
            assert [shown.count(f"line {number}.\r") for number in range(1, 201)] == [1] * 200
            assert again == 4
            assert relay.connections >= 5


# Promises: N10.
async def test_what_is_typed_after_a_cut_arrives_once(server: Server, relay: Relay) -> None:
    async with AsyncIsolet(relay.url) as client, await client.create_sandbox() as sandbox:
        async with sandbox.terminal() as terminal:
            await terminal.write("n=0; echo be''gun\n")
            await terminal.wait_for("begun")
            socket = terminal._socket
            assert socket is not None
            relay.cut()
            while socket.is_open:
                await io.sleep(0.01)
            await terminal.write("n=$((n + 1)); echo n=$n.\n")
            await terminal.wait_for("n=1.")
            await terminal.write("exit\n")
            assert await terminal.exited() == TerminalExit(0)


# Promises: N10.
async def test_a_killed_server_costs_a_terminal_nothing(server: Server, sandbox: AsyncSandbox) -> None:
    async with sandbox.terminal() as terminal:
        await terminal.write("value=5; for i in $(seq 1 40); do echo line $i.; sleep 0.02; done\n")
        await terminal.wait_for("line 3.")
        server.kill()
        server.start()
        shown = await terminal.wait_for("line 40.")
        assert [shown.count(f"line {number}.") for number in range(4, 41)] == [1] * 37
        await terminal.write("echo value=$value.\n")
        await terminal.wait_for("value=5.")


# Promises: N10.
async def test_a_terminal_is_resumed_with_its_state_intact(sandbox: AsyncSandbox) -> None:
    terminal = sandbox.terminal()
    await terminal.open()
    await terminal.write(
        "x=5; echo be''fore; until [ -e go ]; do sleep 0.01; done; echo be''hind; touch gone\n"
    )
    await terminal.wait_for("before")
    name, offset = await terminal.leave()
    with pytest.raises(TerminalClosedError):
        await terminal.wait_for("behind")
    await sandbox.write_file("go", "")
    while not await sandbox.exists("gone"):
        await io.sleep(0.02)
    async with sandbox.terminal(resume=name, since=offset) as again:
        shown = await again.wait_for("behind")
        assert "before" not in shown
        await again.write("echo x=$x.; exit\n")
        await again.wait_for("x=5.")
        await again.exited()
    with pytest.raises(TerminalClosedError) as gone:
        await sandbox.terminal(resume=name).open()
    assert gone.value.code == "no_terminal"


# Promises: N10.
async def test_a_terminal_that_ended_during_an_interruption_is_not_started_again(
    server: Server, relay: Relay
) -> None:
    async with AsyncIsolet() as direct, await direct.create_sandbox() as sandbox:
        async with AsyncIsolet(relay.url) as client:
            command = ["bash", "-c", "echo ran >>ran; echo be''gun; read -r"]
            async with client.sandbox(sandbox.id).terminal(command=command) as terminal:
                await terminal.wait_for("begun")
                # All later output is lost in transit, including the exit event.
                relay.mute = True
                await sandbox.close_terminal()
                relay.cut()
                with pytest.raises(TerminalClosedError) as gone:
                    await terminal.exited()
                assert gone.value.code == "no_terminal"
        assert await sandbox.read_file("ran") == "ran\n"


async def test_terminals_are_listed_and_closed(sandbox: AsyncSandbox) -> None:
    assert await sandbox.terminals() == []
    async with sandbox.terminal("dev", name="me", command=["bash", "--norc"]) as terminal:
        await terminal.write("printf '\\e]0;a title\\a'; echo li''sted\n")
        await terminal.wait_for("listed")
        (info,) = await sandbox.terminals()
        assert (info.session, info.cols, info.rows, info.terminal) == ("dev", 80, 24, terminal.id)
        assert (info.title, info.command, info.clients[0].name) == ("a title", ("bash", "--norc"), "me")
        assert info.offset > 0
        assert info.age >= 0
        await sandbox.close_terminal("dev")
        assert (await terminal.exited()).code > 0
    assert await sandbox.terminals() == []
    await sandbox.close_terminal("dev")


async def test_recordings_can_be_read_and_deleted(sandbox: AsyncSandbox) -> None:
    async with sandbox.terminal(record=True) as terminal:
        await terminal.write("echo re''corded\n")
        await terminal.wait_for("recorded")
        await sandbox.start_recording()
        assert (await sandbox.recordings())[0].ended_at is None
        await sandbox.stop_recording()
        while (await sandbox.recordings())[0].ended_at is None:
            await io.sleep(0.02)
    (recording,) = await sandbox.recordings()
    assert (recording.session, recording.terminal, recording.cut) == ("default", terminal.id, False)
    async with await sandbox.read_recording(recording.id) as stream:
        head, *events = map(json.loads, (await stream.read()).decode().splitlines())
    assert (head["version"], head["width"], head["height"]) == (2, 80, 24)
    assert "recorded" in "".join(data for _, kind, data in events if kind == "o")
    await sandbox.delete_recording(recording.id)
    assert await sandbox.recordings() == []
    with pytest.raises(NotFoundError):
        await sandbox.start_recording("none")


async def test_a_ticket_opens_one_socket_once(server: Server, sandbox: AsyncSandbox) -> None:
    ticket = await sandbox.create_ticket(session="dev", ttl="1m")
    assert ticket.ticket not in repr(ticket)
    at = f"{server.url}/v1/sandboxes/{sandbox.id}/terminal?session=dev&ticket={ticket.ticket}"
    assert [upgraded(at), upgraded(at)] == [101, 401]


async def test_a_permanent_error_is_raised_at_once(server: Server) -> None:
    async with AsyncIsolet(api_key="isolet_wrong") as wrong:
        with pytest.raises(UnauthorizedError):
            await wrong.sandbox("nobodys").terminal().open()
