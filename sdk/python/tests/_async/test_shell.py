"""Shells over a WebSocket: commands, input, signals and lost connections."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from relay import Relay
from server import Server

from isolet import (
    AsyncIsolet,
    AsyncSandbox,
    AsyncShell,
    NotFoundError,
    RefusedError,
    ShellClosedError,
    UnreachableError,
    UsageError,
)
from isolet._async import io

pytestmark = pytest.mark.anyio


async def test_commands_of_a_shell_share_everything(sandbox: AsyncSandbox) -> None:
    async with sandbox.shell() as shell:
        first = await shell.run("cd /tmp; x=5; f() { echo f of $x; }; echo out; echo err >&2; false")
        assert (first.exit_code, first.stdout, first.stderr, first.session) == (1, "out\n", "err\n", None)
        assert (await shell.run("echo $?; f; pwd")).stdout == "1\nf of 5\n/tmp\n"
        only = await shell.run("pwd; echo $A", cwd="/usr", env={"A": "b"}, merge=True)
        assert only.stdout == "/usr\nb\n"
        assert (await shell.run("pwd; echo ${A-unset}")).stdout == "/tmp\nunset\n"


# Promises: Y5.
async def test_bytes_are_exact_and_characters_whole(sandbox: AsyncSandbox) -> None:
    async with sandbox.shell() as shell:
        result = await shell.run(r"printf 'a\377b'; printf '\303'; sleep 0.05; printf '\274'")
        assert (result.stdout, result.stdout_bytes) == ("a\ufffdbü", b"a\xffb\xc3\xbc")
        command = await shell.start(r"printf '\303'; sleep 0.05; printf '\274'; printf '\303' >&2")
        texts = [piece.text async for piece in command]
        assert "".join(texts) in ("ü\ufffd", "\ufffdü")


async def test_output_comes_while_it_is_written(sandbox: AsyncSandbox) -> None:
    async with sandbox.shell() as shell:
        command = await shell.start("echo one; until [ -e go ]; do sleep 0.01; done; echo two; exit 3")
        assert (await command.__anext__()).text == "one\n"
        await sandbox.write_file("go", "")
        assert [piece.text async for piece in command] == ["two\n"]
        result = await command.result()
        assert (result.exit_code, result.stdout) == (3, "one\ntwo\n")
        with pytest.raises(ShellClosedError):
            await shell.run("true")


async def test_a_command_is_written_to_while_it_runs(sandbox: AsyncSandbox) -> None:
    async with sandbox.shell() as shell:
        command = await shell.start('while read -r line; do echo "got $line"; done; echo over', stdin=True)
        await command.write("one\n")
        assert (await command.__anext__()).text == "got one\n"
        await command.write(b"two\n")
        assert (await command.__anext__()).text == "got two\n"
        await command.close_stdin()
        assert (await command.result()).stdout == "got one\ngot two\nover\n"
        assert (await shell.run("cat", stdin="")).stdout == ""
        assert (await shell.run("cat", stdin=b"\xff\x00")).stdout_bytes == b"\xff\x00"


async def test_much_input_is_read_while_much_output_is_written(sandbox: AsyncSandbox) -> None:
    async with sandbox.shell() as shell:
        text = "0123456789abcdef" * 250_000
        result = await shell.run("tee copy", stdin=text, timeout=60)
        assert result.stdout == text
        # `head` has exited, and the rest of the input is discarded.
        assert (await shell.run("head -c 3", stdin=text, timeout=60)).stdout == "012"
        assert (await shell.run("wc -c <copy")).stdout.strip() == "4000000"


async def test_a_cancel_a_signal_and_a_timeout_keep_the_shell(sandbox: AsyncSandbox) -> None:
    async with sandbox.shell() as shell:
        command = await shell.start("x=5; echo begun; sleep 1000")
        waiting = await shell.start("echo never")
        await command.__anext__()
        await waiting.cancel()
        await command.cancel()
        assert (await command.result()).cancelled
        assert ((await waiting.result()).cancelled, (await waiting.result()).stdout) == (True, "")
        ended = await shell.start("sh -c 'echo begun; exec sleep 1000'")
        await ended.__anext__()
        await ended.signal("TERM")
        assert (await ended.result()).exit_code == 143
        assert (await shell.run("sleep 1000", timeout=0.2)).timed_out
        assert (await shell.run("echo $x")).stdout == "5\n"


async def test_commands_that_cannot_run_raise(sandbox: AsyncSandbox) -> None:
    async with sandbox.shell() as shell:
        with pytest.raises(RefusedError, match="/no/such") as nowhere:
            await shell.run("true", cwd="/no/such")
        assert nowhere.value.code == "bad_cwd"
        with pytest.raises(RefusedError) as name:
            await shell.run("true", env={"A=B": "c"})
        assert name.value.code == "bad_field"
        with pytest.raises(UsageError):
            await shell.run("a\0b")
        busy = await shell.start("until [ -e go ]; do sleep 0.01; done")
        many = [await shell.start("true") for _ in range(70)]
        with pytest.raises(RefusedError) as full:
            await many[-1].result()
        assert full.value.code == "queue_full"
        await sandbox.write_file("go", "")
        assert (await busy.result()).ok
        assert (await many[0].result()).ok
        # A signal for a finished command has no effect.
        late = await shell.start("true")
        await late.signal("INT")
        await late.result()
        assert (await shell.run("echo on")).stdout == "on\n"


async def test_a_shell_that_exits_reports_how(sandbox: AsyncSandbox) -> None:
    async with sandbox.shell() as shell:
        result = await shell.run("kill -9 $$")
        assert result.exit_code == 137
        with pytest.raises(ShellClosedError) as raised:
            await shell.run("true")
        assert "has ended" in raised.value.message


async def test_a_sessions_shell_outlives_its_connection_and_its_end(sandbox: AsyncSandbox) -> None:
    session = sandbox.session("dev")
    async with session.shell() as shell:
        assert (await shell.run("x=5; echo $x")).session == "dev"
    assert (await session.exec("echo $x")).stdout == "5\n"
    async with sandbox.shell("dev") as shell:
        assert (await shell.run("exit 7")).exit_code == 7
        fresh = await shell.run("echo ${x-unset}")
        assert (fresh.stdout, fresh.fresh) == ("unset\n", True)


async def test_output_of_background_jobs_is_separate(sandbox: AsyncSandbox) -> None:
    async with sandbox.shell() as shell:
        started = await shell.run("(until [ -e go ]; do sleep 0.01; done; echo later; touch done) & echo now")
        assert started.stdout == "now\n"
        await sandbox.write_file("go", "")
        while not await sandbox.exists("done"):
            await io.sleep(0.02)
        assert (await shell.run("true")).stdout == ""
        assert "".join(piece.text for piece in shell.background()) == "later\n"
        assert shell.background() == []


# Promises: N12, Y2.
async def test_no_byte_is_lost_or_doubled_over_broken_connections(server: Server, relay: Relay) -> None:
    async with AsyncIsolet(relay.url) as client, await client.create_sandbox() as sandbox:
        async with sandbox.shell() as shell:
            # It waits three times for a client that is slow, so that there are as many cuts at least.
            wait = "case $i in 150|300|450) until [ -e line-$i ]; do sleep 0.01; done; esac"
            command = await shell.start(f"for i in $(seq 1 600); do echo line $i; sleep 0.002; {wait}; done")
            text, offsets, waits = "", [], [150, 300, 450]
            async with AsyncIsolet() as direct:
                async for piece in command:
                    offsets.append((piece.offset, len(piece.data)))
                    before, text = len(text), text + piece.text
                    if before // 1400 != len(text) // 1400:
                        relay.cut()
                    if waits and f"line {waits[0]}\n" in text:
                        relay.cut()
                        await direct.sandbox(sandbox.id).write_file(f"line-{waits.pop(0)}", "")
            assert text == "".join(f"line {number}\n" for number in range(1, 601))
            assert (await command.result()).stdout == text
            begins = [begin for begin, _ in offsets]
            assert begins[1:] == [begin + size for begin, size in offsets[:-1]]
            assert relay.connections >= 4


# Promises: Y2.
async def test_a_command_that_never_arrived_is_sent_again_and_none_runs_twice(
    server: Server, relay: Relay
) -> None:
    async with AsyncIsolet(relay.url) as client, await client.create_sandbox() as sandbox:
        async with sandbox.shell() as shell:
            await shell.run("ran() { echo $1 >>/workspace/ran; }; (exit 3)")
            arrived = await shell.start("ran first; sleep 0.3; (exit 5)")
            await shell.start("ran second")
            async with AsyncIsolet() as direct:
                other = direct.sandbox(sandbox.id)
                while not await other.exists("ran"):
                    await io.sleep(0.02)
                relay.deaf = True
                lost = [await shell.start(f'echo "after $?"; ran {name}') for name in ("third", "fourth")]
                relay.cut()
                assert (await arrived.result()).exit_code == 5
                assert [(await command.result()).stdout for command in lost] == ["after 0\n"] * 2
                assert await other.read_file("ran") == "first\nsecond\nthird\nfourth\n"


# Promises: Y3.
async def test_a_command_that_was_receiving_input_is_cancelled_when_the_connection_breaks(
    server: Server, relay: Relay
) -> None:
    async with AsyncIsolet(relay.url) as client, await client.create_sandbox() as sandbox:
        async with sandbox.shell() as shell:
            command = await shell.start("cat >copy; echo unreached", stdin=True)
            await command.write("half")
            relay.cut()
            with pytest.raises(UnreachableError, match="while input for command"):
                await command.result()
            assert (await shell.run("echo on")).stdout == "on\n"


# Promises: Y2.
async def test_a_killed_server_costs_a_shell_nothing(server: Server, sandbox: AsyncSandbox) -> None:
    async with sandbox.shell() as shell:
        await shell.run("x=5")
        command = await shell.start("for i in $(seq 1 40); do echo $i; sleep 0.02; done")
        await command.__anext__()
        server.kill()
        server.start()
        result = await command.result()
        assert result.stdout == "".join(f"{number}\n" for number in range(1, 41))
        assert (await shell.run("echo $x")).stdout == "5\n"


# Promises: Y4.
async def test_a_shell_that_was_left_is_resumed_at_its_byte(sandbox: AsyncSandbox) -> None:
    shell = sandbox.shell()
    command = await shell.start("x=5; echo one; until [ -e go ]; do sleep 0.01; done; echo two")
    await command.__anext__()
    name, position = await shell.leave()
    assert name == shell.name
    with pytest.raises(ShellClosedError):
        await shell.run("true")
    await sandbox.write_file("go", "")
    async with sandbox.shell(resume=name, since=position) as again:
        result = await again.command(command.id).result()
        assert (result.exit_code, result.stdout) == (0, "two\n")
        assert (await again.run("echo $x")).stdout == "5\n"
    with pytest.raises(NotFoundError) as gone:
        await sandbox.shell(resume=name).open()
    assert gone.value.code == "no_shell"


# Promises: Y4.
async def test_lost_bytes_are_reported(sandbox: AsyncSandbox) -> None:
    session = sandbox.session("loud")
    shell = session.shell()
    command = await shell.start("echo begin; until [ -e go ]; do sleep 0.01; done; head -c 3000000 /dev/zero")
    assert (await command.__anext__()).text == "begin\n"
    name, position = await shell.leave()
    await sandbox.write_file("go", "")
    # The client reads all later output, and the command does not wait for a client that has left.
    await session.exec("true")
    async with session.shell(resume=name, since=position) as again:
        pieces = [piece async for piece in again.command(command.id)]
        missed = sum(piece.missed for piece in pieces)
        assert missed >= 1_900_000
        assert missed + sum(len(piece.data) for piece in pieces) == 3_000_000
        assert again.position[0] == 3_000_006


async def test_several_callers_use_one_shell(sandbox: AsyncSandbox) -> None:
    async with sandbox.shell() as shell:
        said: list[str] = []

        async def use(shell: AsyncShell, number: int) -> None:
            for turn in range(5):
                said.append((await shell.run(f"echo {number} {turn}")).stdout)

        tasks = [io.Task(use, shell, number) for number in range(4)]
        for task in tasks:
            await task.join()
        assert sorted(said) == [f"{number} {turn}\n" for number in range(4) for turn in range(5)]


async def test_the_end_of_a_sandbox_ends_its_shells(client: AsyncIsolet, fresh: Callable[[], str]) -> None:
    sandbox = client.sandbox(fresh())
    async with sandbox.shell() as shell:
        command = await shell.start("echo begun; sleep 1000")
        await command.__anext__()
        await sandbox.delete()
        with pytest.raises(ShellClosedError):
            await command.result()
    assert sandbox.id not in [info.id async for info in client.sandboxes()]
