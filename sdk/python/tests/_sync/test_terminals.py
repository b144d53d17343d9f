"""Terminals: what they show, who is attached, and connections that break."""
# Made by tools/make_sync.py from its async twin: change that one.

from __future__ import annotations

import json
import re

import httpx
import pytest
from relay import Relay
from server import Server

from isolet import (
    Isolet,
    Sandbox,
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
from isolet._sync import io

pytestmark = pytest.mark.anyio


def upgraded(url: str) -> int:
    """The status of the answer to an upgrade."""
    headers = {
        "connection": "upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA==",
    }
    with httpx.stream("GET", url, headers=headers, timeout=20) as answer:
        return answer.status_code


def test_a_script_types_waits_for_what_it_wants_and_is_told_the_end(sandbox: Sandbox) -> None:
    with sandbox.terminal(cols=100, rows=30) as terminal:
        terminal.write("stty size; echo $((6*7))\n")
        assert (terminal.wait_for(re.compile(r"\s30 100\r"))).endswith("30 100\r")
        assert "\n42\r" in terminal.wait_for(re.compile(r"\s42\r"))
        terminal.resize(90, 20)
        terminal.write("stty size\n")
        terminal.wait_for("20 90")
        with pytest.raises(WaitTimeoutError):
            terminal.wait_for("never shown", timeout=0.05)
        with pytest.raises(UsageError):
            terminal.resize(0, 20)
        terminal.write("sh -c 'echo be\"\"gun; exec sleep 1000'\n")
        terminal.wait_for("begun")
        terminal.write("\x03")
        terminal.wait_for("^C")
        terminal.write("exit 5\n")
        assert terminal.exited() == TerminalExit(5)
        assert terminal.exit == TerminalExit(5)
        with pytest.raises(TerminalClosedError) as closed:
            terminal.write("x")
        assert closed.value.code == "exited"
        with pytest.raises(TerminalClosedError):
            terminal.wait_for("never shown")


def test_a_program_of_ones_own_runs_and_its_signal_is_told(sandbox: Sandbox) -> None:
    command = ["python3", "-c", "input('name? '); import os; os.kill(os.getpid(), 15)"]
    with sandbox.terminal(command=command) as terminal:
        terminal.wait_for("name? ")
        terminal.write("x\n")
        events = [event for event in terminal]
        assert events[-1] == TerminalExit(143, "SIGTERM")
    with pytest.raises(UsageError):
        sandbox.terminal(command="python3")


def test_output_is_iterated_with_offsets(sandbox: Sandbox) -> None:
    sandbox.write_file(
        "lines.sh", "stty -onlcr; seq 1 20000; printf '\\303'; sleep 0.05; printf '\\274'"
    )
    terminal = sandbox.terminal(command=["bash", "/workspace/lines.sh"])
    shown, texts, next_offset = b"", [], 0
    for event in terminal:
        if isinstance(event, TerminalAttached):
            assert (event.fresh, event.again, event.cols, event.rows) == (True, False, 80, 24)
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
    terminal.close()


def test_who_reads_slowly_is_told_what_it_missed(sandbox: Sandbox) -> None:
    sandbox.write_file("lines.sh", "seq 1 3000000; touch /workspace/over; read -r")
    with sandbox.terminal(command=["bash", "/workspace/lines.sh"]) as terminal:
        # The program waits for nobody for long: it ends its lines while nothing is read here.
        while not sandbox.exists("over"):
            io.sleep(0.05)
        shown, missed, tail = 0, 0, ""
        for event in terminal:
            if isinstance(event, TerminalSnapshot):
                missed += event.missed
            elif isinstance(event, TerminalOutput):
                shown += len(event.data)
            if isinstance(event, (TerminalSnapshot, TerminalOutput)):
                before, tail = tail, (tail + event.text)[-40:]
                if "3000000" in tail and "3000000" not in before:
                    terminal.write("\n")
        # Its lines, and the one that was typed.
        assert shown + missed == sum(len(f"{number}\r\n") for number in range(1, 3_000_001)) + 2
        assert missed > 0


def test_a_viewer_looks_on_and_each_sees_who_is_attached(sandbox: Sandbox) -> None:
    session = sandbox.create_session("dev")
    with session.terminal(name="editor") as editor:
        with session.terminal(mode="view", name="viewer", cols=200, rows=50) as viewer:
            seen = None
            for event in editor:
                if isinstance(event, TerminalClients) and len(event.clients) == 2:
                    seen = [(one.name, one.mode) for one in event.clients]
                    break
            assert seen == [("editor", "edit"), ("viewer", "view")]
            assert len(editor.clients) == 2
            with pytest.raises(UsageError) as refused:
                viewer.write("echo no\n")
            assert refused.value.code == "view_only"
            editor.resize(70, 20)
            editor.write("echo se''en\n")
            sizes = []
            for event in viewer:
                if isinstance(event, TerminalSize):
                    sizes.append((event.cols, event.rows))
                if isinstance(event, TerminalOutput) and "seen" in event.text:
                    break
            assert sizes == [(70, 20)]
        while len(editor.clients) == 2:
            editor.__next__()
    with pytest.raises(UsageError):
        session.terminal(mode="look")


def test_a_cut_connection_is_taken_up_where_it_was(server: Server, relay: Relay) -> None:
    with Isolet(relay.url) as client, client.create_sandbox() as sandbox:
        with sandbox.terminal() as terminal:
            terminal.write('for i in $(seq 1 200); do echo "line $i."; sleep 0.01; done; exit 0\n')
            shown, again, next_offset, cuts = "", 0, None, [20, 60, 100, 140]
            for event in terminal:
                if isinstance(event, TerminalAttached):
                    again += event.again
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


def test_what_is_typed_after_a_cut_arrives_once(server: Server, relay: Relay) -> None:
    with Isolet(relay.url) as client, client.create_sandbox() as sandbox:
        with sandbox.terminal() as terminal:
            terminal.write("n=0; echo be''gun\n")
            terminal.wait_for("begun")
            socket = terminal._socket
            assert socket is not None
            relay.cut()
            while socket.stands:
                io.sleep(0.01)
            terminal.write("n=$((n + 1)); echo n=$n.\n")
            terminal.wait_for("n=1.")
            terminal.write("exit\n")
            assert terminal.exited() == TerminalExit(0)


def test_a_killed_server_costs_a_terminal_nothing(server: Server, sandbox: Sandbox) -> None:
    with sandbox.terminal() as terminal:
        terminal.write("kept=5; for i in $(seq 1 40); do echo line $i.; sleep 0.02; done\n")
        terminal.wait_for("line 3.")
        server.kill()
        server.start()
        shown = terminal.wait_for("line 40.")
        assert [shown.count(f"line {number}.") for number in range(4, 41)] == [1] * 37
        terminal.write("echo kept=$kept.\n")
        terminal.wait_for("kept=5.")


def test_a_terminal_that_was_left_is_found_as_it_was(sandbox: Sandbox) -> None:
    terminal = sandbox.terminal()
    terminal.open()
    terminal.write(
        "x=5; echo be''fore; until [ -e go ]; do sleep 0.01; done; echo be''hind; touch gone\n"
    )
    terminal.wait_for("before")
    name, offset = terminal.leave()
    with pytest.raises(TerminalClosedError):
        terminal.wait_for("behind")
    sandbox.write_file("go", "")
    while not sandbox.exists("gone"):
        io.sleep(0.02)
    with sandbox.terminal(resume=name, since=offset) as again:
        shown = again.wait_for("behind")
        assert "before" not in shown
        again.write("echo x=$x.; exit\n")
        again.wait_for("x=5.")
        again.exited()
    with pytest.raises(TerminalClosedError) as gone:
        sandbox.terminal(resume=name).open()
    assert gone.value.code == "no_terminal"


def test_a_terminal_that_ended_while_one_was_away_is_not_run_again(
    server: Server, relay: Relay
) -> None:
    with Isolet() as direct, direct.create_sandbox() as sandbox:
        with Isolet(relay.url) as client:
            command = ["bash", "-c", "echo ran >>ran; echo be''gun; read -r"]
            with client.sandbox(sandbox.id).terminal(command=command) as terminal:
                terminal.wait_for("begun")
                # What is said from here on is lost on the way, and the end with it.
                relay.mute = True
                sandbox.close_terminal()
                relay.cut()
                with pytest.raises(TerminalClosedError) as gone:
                    terminal.exited()
                assert gone.value.code == "no_terminal"
        assert sandbox.read_file("ran") == "ran\n"


def test_terminals_are_listed_and_closed(sandbox: Sandbox) -> None:
    assert sandbox.terminals() == []
    with sandbox.terminal("dev", name="me", command=["bash", "--norc"]) as terminal:
        terminal.write("printf '\\e]0;a title\\a'; echo li''sted\n")
        terminal.wait_for("listed")
        (info,) = sandbox.terminals()
        assert (info.session, info.cols, info.rows, info.terminal) == ("dev", 80, 24, terminal.id)
        assert (info.title, info.command, info.clients[0].name) == ("a title", ("bash", "--norc"), "me")
        assert info.offset > 0
        assert info.age >= 0
        sandbox.close_terminal("dev")
        assert (terminal.exited()).code > 0
    assert sandbox.terminals() == []
    sandbox.close_terminal("dev")


def test_what_is_recorded_can_be_read_and_removed(sandbox: Sandbox) -> None:
    with sandbox.terminal(record=True) as terminal:
        terminal.write("echo re''corded\n")
        terminal.wait_for("recorded")
        sandbox.start_recording()
        assert (sandbox.recordings())[0].ended_at is None
        sandbox.stop_recording()
        while (sandbox.recordings())[0].ended_at is None:
            io.sleep(0.02)
    (recording,) = sandbox.recordings()
    assert (recording.session, recording.terminal, recording.cut) == ("default", terminal.id, False)
    with sandbox.read_recording(recording.id) as stream:
        head, *events = map(json.loads, (stream.read()).decode().splitlines())
    assert (head["version"], head["width"], head["height"]) == (2, 80, 24)
    assert "recorded" in "".join(data for _, kind, data in events if kind == "o")
    sandbox.delete_recording(recording.id)
    assert sandbox.recordings() == []
    with pytest.raises(NotFoundError):
        sandbox.start_recording("none")


def test_a_ticket_opens_one_socket_once(server: Server, sandbox: Sandbox) -> None:
    ticket = sandbox.create_ticket(session="dev", ttl="1m")
    assert ticket.ticket not in repr(ticket)
    at = f"{server.url}/v1/sandboxes/{sandbox.id}/terminal?session=dev&ticket={ticket.ticket}"
    assert [upgraded(at), upgraded(at)] == [101, 401]


def test_a_refusal_that_another_try_does_not_cure_is_told_at_once(server: Server) -> None:
    with Isolet(api_key="isolet_wrong") as wrong:
        with pytest.raises(UnauthorizedError):
            wrong.sandbox("nobodys").terminal().open()
