"""Shells over a WebSocket: commands, input, signals, and connections that break."""
# Made by tools/make_sync.py from its async twin: change that one.

from __future__ import annotations

from collections.abc import Callable

import pytest
from relay import Relay
from server import Server

from isolet import (
    Isolet,
    Sandbox,
    Shell,
    NotFoundError,
    RefusedError,
    ShellClosedError,
    UnreachableError,
    UsageError,
)
from isolet._sync import io

pytestmark = pytest.mark.anyio


def test_commands_of_a_shell_share_everything(sandbox: Sandbox) -> None:
    with sandbox.shell() as shell:
        first = shell.run("cd /tmp; x=5; f() { echo f of $x; }; echo out; echo err >&2; false")
        assert (first.exit_code, first.stdout, first.stderr, first.session) == (1, "out\n", "err\n", None)
        assert (shell.run("echo $?; f; pwd")).stdout == "1\nf of 5\n/tmp\n"
        only = shell.run("pwd; echo $A", cwd="/usr", env={"A": "b"}, merge=True)
        assert only.stdout == "/usr\nb\n"
        assert (shell.run("pwd; echo ${A-unset}")).stdout == "/tmp\nunset\n"


def test_bytes_are_exact_and_characters_whole(sandbox: Sandbox) -> None:
    with sandbox.shell() as shell:
        result = shell.run(r"printf 'a\377b'; printf '\303'; sleep 0.05; printf '\274'")
        assert (result.stdout, result.stdout_bytes) == ("a\ufffdbü", b"a\xffb\xc3\xbc")
        command = shell.start(r"printf '\303'; sleep 0.05; printf '\274'; printf '\303' >&2")
        texts = [piece.text for piece in command]
        assert "".join(texts) in ("ü\ufffd", "\ufffdü")


def test_output_comes_while_it_is_written(sandbox: Sandbox) -> None:
    with sandbox.shell() as shell:
        command = shell.start("echo one; until [ -e go ]; do sleep 0.01; done; echo two; exit 3")
        assert (command.__next__()).text == "one\n"
        sandbox.write_file("go", "")
        assert [piece.text for piece in command] == ["two\n"]
        result = command.result()
        assert (result.exit_code, result.stdout) == (3, "one\ntwo\n")
        with pytest.raises(ShellClosedError):
            shell.run("true")


def test_a_command_is_written_to_while_it_runs(sandbox: Sandbox) -> None:
    with sandbox.shell() as shell:
        command = shell.start('while read -r line; do echo "got $line"; done; echo over', stdin=True)
        command.write("one\n")
        assert (command.__next__()).text == "got one\n"
        command.write(b"two\n")
        assert (command.__next__()).text == "got two\n"
        command.close_stdin()
        assert (command.result()).stdout == "got one\ngot two\nover\n"
        assert (shell.run("cat", stdin="")).stdout == ""
        assert (shell.run("cat", stdin=b"\xff\x00")).stdout_bytes == b"\xff\x00"


def test_much_input_is_read_while_much_output_is_written(sandbox: Sandbox) -> None:
    with sandbox.shell() as shell:
        text = "0123456789abcdef" * 250_000
        result = shell.run("tee copy", stdin=text, timeout=60)
        assert result.stdout == text
        # Its reader has gone, and the rest of its input with it.
        assert (shell.run("head -c 3", stdin=text, timeout=60)).stdout == "012"
        assert (shell.run("wc -c <copy")).stdout.strip() == "4000000"


def test_a_cancel_a_signal_and_a_timeout_keep_the_shell(sandbox: Sandbox) -> None:
    with sandbox.shell() as shell:
        command = shell.start("x=5; echo begun; sleep 1000")
        waiting = shell.start("echo never")
        command.__next__()
        waiting.cancel()
        command.cancel()
        assert (command.result()).cancelled
        assert ((waiting.result()).cancelled, (waiting.result()).stdout) == (True, "")
        ended = shell.start("sh -c 'echo begun; exec sleep 1000'")
        ended.__next__()
        ended.signal("TERM")
        assert (ended.result()).exit_code == 143
        assert (shell.run("sleep 1000", timeout=0.2)).timed_out
        assert (shell.run("echo $x")).stdout == "5\n"


def test_what_cannot_run_is_told(sandbox: Sandbox) -> None:
    with sandbox.shell() as shell:
        with pytest.raises(RefusedError, match="/no/such") as nowhere:
            shell.run("true", cwd="/no/such")
        assert nowhere.value.code == "bad_cwd"
        with pytest.raises(RefusedError) as name:
            shell.run("true", env={"A=B": "c"})
        assert name.value.code == "bad_field"
        with pytest.raises(UsageError):
            shell.run("a\0b")
        busy = shell.start("until [ -e go ]; do sleep 0.01; done")
        many = [shell.start("true") for _ in range(70)]
        with pytest.raises(RefusedError) as full:
            many[-1].result()
        assert full.value.code == "queue_full"
        sandbox.write_file("go", "")
        assert (busy.result()).ok
        assert (many[0].result()).ok
        # A signal for what does not run any more changes nothing.
        late = shell.start("true")
        late.signal("INT")
        late.result()
        assert (shell.run("echo on")).stdout == "on\n"


def test_a_shell_that_ends_says_how(sandbox: Sandbox) -> None:
    with sandbox.shell() as shell:
        result = shell.run("kill -9 $$")
        assert result.exit_code == 137
        with pytest.raises(ShellClosedError) as raised:
            shell.run("true")
        assert "has ended" in raised.value.message


def test_a_sessions_shell_outlives_its_connection_and_its_end(sandbox: Sandbox) -> None:
    session = sandbox.session("dev")
    with session.shell() as shell:
        assert (shell.run("x=5; echo $x")).session == "dev"
    assert (session.exec("echo $x")).stdout == "5\n"
    with sandbox.shell("dev") as shell:
        assert (shell.run("exit 7")).exit_code == 7
        fresh = shell.run("echo ${x-unset}")
        assert (fresh.stdout, fresh.fresh) == ("unset\n", True)


def test_background_jobs_are_heard_apart(sandbox: Sandbox) -> None:
    with sandbox.shell() as shell:
        started = shell.run("(until [ -e go ]; do sleep 0.01; done; echo later; touch done) & echo now")
        assert started.stdout == "now\n"
        sandbox.write_file("go", "")
        while not sandbox.exists("done"):
            io.sleep(0.02)
        assert (shell.run("true")).stdout == ""
        assert "".join(piece.text for piece in shell.background()) == "later\n"
        assert shell.background() == []


def test_no_byte_is_lost_or_doubled_over_broken_connections(server: Server, relay: Relay) -> None:
    with Isolet(relay.url) as client, client.create_sandbox() as sandbox:
        with sandbox.shell() as shell:
            command = shell.start("for i in $(seq 1 600); do echo line $i; sleep 0.002; done")
            text, offsets = "", []
            for piece in command:
                offsets.append((piece.offset, len(piece.data)))
                before, text = len(text), text + piece.text
                if before // 1400 != len(text) // 1400:
                    relay.cut()
            assert text == "".join(f"line {number}\n" for number in range(1, 601))
            assert (command.result()).stdout == text
            begins = [begin for begin, _ in offsets]
            assert begins[1:] == [begin + size for begin, size in offsets[:-1]]
            assert relay.connections >= 4


def test_a_command_that_never_arrived_is_sent_again_and_none_runs_twice(
    server: Server, relay: Relay
) -> None:
    with Isolet(relay.url) as client, client.create_sandbox() as sandbox:
        with sandbox.shell() as shell:
            shell.run("ran() { echo $1 >>/workspace/ran; }; (exit 3)")
            arrived = shell.start("ran first; sleep 0.3; (exit 5)")
            shell.start("ran second")
            with Isolet() as direct:
                other = direct.sandbox(sandbox.id)
                while not other.exists("ran"):
                    io.sleep(0.02)
                relay.deaf = True
                lost = [shell.start(f'echo "after $?"; ran {name}') for name in ("third", "fourth")]
                relay.cut()
                assert (arrived.result()).exit_code == 5
                assert [(command.result()).stdout for command in lost] == ["after 0\n"] * 2
                assert other.read_file("ran") == "first\nsecond\nthird\nfourth\n"


def test_a_command_that_was_being_fed_is_cancelled_when_the_connection_breaks(
    server: Server, relay: Relay
) -> None:
    with Isolet(relay.url) as client, client.create_sandbox() as sandbox:
        with sandbox.shell() as shell:
            command = shell.start("cat >copy; echo unreached", stdin=True)
            command.write("half")
            relay.cut()
            with pytest.raises(UnreachableError, match="was given its input"):
                command.result()
            assert (shell.run("echo on")).stdout == "on\n"


def test_a_killed_server_costs_a_shell_nothing(server: Server, sandbox: Sandbox) -> None:
    with sandbox.shell() as shell:
        shell.run("x=5")
        command = shell.start("for i in $(seq 1 40); do echo $i; sleep 0.02; done")
        command.__next__()
        server.kill()
        server.start()
        result = command.result()
        assert result.stdout == "".join(f"{number}\n" for number in range(1, 41))
        assert (shell.run("echo $x")).stdout == "5\n"


def test_a_shell_that_was_left_is_resumed_at_its_byte(sandbox: Sandbox) -> None:
    shell = sandbox.shell()
    command = shell.start("x=5; echo one; until [ -e go ]; do sleep 0.01; done; echo two")
    command.__next__()
    name, position = shell.leave()
    assert name == shell.name
    with pytest.raises(ShellClosedError):
        shell.run("true")
    sandbox.write_file("go", "")
    with sandbox.shell(resume=name, since=position) as again:
        result = again.command(command.id).result()
        assert (result.exit_code, result.stdout) == (0, "two\n")
        assert (again.run("echo $x")).stdout == "5\n"
    with pytest.raises(NotFoundError) as gone:
        sandbox.shell(resume=name).open()
    assert gone.value.code == "no_shell"


def test_bytes_that_are_not_held_are_told(sandbox: Sandbox) -> None:
    session = sandbox.session("loud")
    shell = session.shell()
    command = shell.start("echo begin; until [ -e go ]; do sleep 0.01; done; head -c 3000000 /dev/zero")
    assert (command.__next__()).text == "begin\n"
    name, position = shell.leave()
    sandbox.write_file("go", "")
    # It reads all of what comes behind, and nobody waits for who has left.
    session.exec("true")
    with session.shell(resume=name, since=position) as again:
        pieces = [piece for piece in again.command(command.id)]
        missed = sum(piece.missed for piece in pieces)
        assert missed >= 1_900_000
        assert missed + sum(len(piece.data) for piece in pieces) == 3_000_000
        assert again.position[0] == 3_000_006


def test_several_use_one_shell(sandbox: Sandbox) -> None:
    with sandbox.shell() as shell:
        said: list[str] = []

        def use(shell: Shell, number: int) -> None:
            for turn in range(5):
                said.append((shell.run(f"echo {number} {turn}")).stdout)

        tasks = [io.Task(use, shell, number) for number in range(4)]
        for task in tasks:
            task.join()
        assert sorted(said) == [f"{number} {turn}\n" for number in range(4) for turn in range(5)]


def test_the_end_of_a_sandbox_ends_its_shells(client: Isolet, fresh: Callable[[], str]) -> None:
    sandbox = client.sandbox(fresh())
    with sandbox.shell() as shell:
        command = shell.start("echo begun; sleep 1000")
        command.__next__()
        sandbox.delete()
        with pytest.raises(ShellClosedError):
            command.result()
    assert sandbox.id not in [info.id for info in client.sandboxes()]
