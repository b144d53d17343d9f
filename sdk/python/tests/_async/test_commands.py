"""Commands over HTTP: in sessions, as separate processes, and streamed."""

from __future__ import annotations

import gc

import pytest
from relay import Relay

from isolet import (
    AsyncIsolet,
    AsyncSandbox,
    CommandError,
    FileAccess,
    NotFoundError,
    Output,
    RefusedError,
    UsageError,
)
from isolet._async import io

pytestmark = pytest.mark.anyio


# Promises: Y15.
async def test_an_abandoned_stream_is_freed_at_once(sandbox: AsyncSandbox) -> None:
    # The garbage collector could otherwise free it inside the connection pool's lock, and deadlock.
    await sandbox.write_file("large", b"x" * 10_000_000)
    gc.disable()
    try:
        async for _ in await sandbox.stream("echo a; sleep 1000", session="left"):
            break
        async for _ in sandbox.events(after=0):
            break
        async for _ in await sandbox.stream_file("large"):
            break
        open_now = 0
        for _ in range(400):
            # The client's connections that carry a response.
            pool = sandbox._connection._http._transport._pool  # type: ignore[attr-defined]
            open_now = sum(not one.is_idle() for one in pool.connections)
            if open_now == 0:
                break
            await io.sleep(0.05)
        assert open_now == 0
        assert (await sandbox.exec("echo free", session="left", timeout=20)).stdout == "free\n"
    finally:
        gc.enable()


async def test_commands_of_the_default_session_share_directory_and_variables(sandbox: AsyncSandbox) -> None:
    result = await sandbox.exec("cd /tmp; export GREETING=hello; echo out; echo err >&2; (exit 3)")
    assert (result.exit_code, result.ok, result.stdout, result.stderr) == (3, False, "out\n", "err\n")
    assert (result.session, result.timed_out, result.truncated) == ("default", False, None)
    assert 0 < result.duration < 10
    assert (await sandbox.exec("pwd; echo $GREETING")).stdout == "/tmp\nhello\n"


async def test_without_a_default_session_commands_run_as_separate_processes(client: AsyncIsolet) -> None:
    async with await client.create_sandbox(default_session=False) as sandbox:
        await sandbox.exec("cd /tmp")
        result = await sandbox.exec("pwd")
        assert (result.stdout, result.session) == ("/workspace\n", None)


async def test_a_program_has_arguments_and_no_shell(sandbox: AsyncSandbox) -> None:
    result = await sandbox.run_program(["printf", "%s\n", "$HOME; echo 'x'"], env={"A": "b"})
    assert result.check().stdout == "$HOME; echo 'x'\n"
    assert (await sandbox.run_program("exit 7")).exit_code == 7
    with pytest.raises(NotFoundError) as raised:
        await sandbox.run_program(["no-such-program"])
    assert raised.value.code == "not_found"
    with pytest.raises(UsageError):
        await sandbox.exec(["ls"])  # type: ignore[arg-type]


async def test_a_program_starts_in_its_sessions_directory_and_does_not_wait_for_its_shell(
    sandbox: AsyncSandbox,
) -> None:
    await sandbox.create_session("dev", cwd="/usr", env={"A": "made"})
    async with await sandbox.stream("echo begun; sleep 60", session="dev") as busy:
        assert (await busy.__anext__()).text == "begun\n"
        result = await sandbox.run_program("pwd; echo $A", session="dev")
        assert (result.stdout, result.session) == ("/usr\nmade\n", "dev")


async def test_input_directory_and_environment_apply_to_one_command(sandbox: AsyncSandbox) -> None:
    result = await sandbox.exec(
        "cat; pwd; echo $A ${HOME-none}", stdin="in\n", cwd="/tmp", env={"A": "b", "HOME": None}
    )
    assert result.stdout == "in\n/tmp\nb none\n"
    assert (await sandbox.exec("pwd; echo ${A-unset}")).stdout == "/workspace\nunset\n"
    assert (await sandbox.exec("cat", stdin=b"\xff\x00\n")).stdout_bytes == b"\xff\x00\n"
    assert (await sandbox.exec("echo out; echo err >&2", env={})).stderr == "err\n"
    assert (await sandbox.session("default").exec("echo err >&2", merge=True)).stdout == "err\n"


# Promises: Y5.
async def test_bytes_are_exact_and_truncation_is_reported(sandbox: AsyncSandbox) -> None:
    result = await sandbox.exec(r"printf 'a\377b'; printf 'grün' >&2")
    assert (result.stdout, result.stdout_bytes) == ("a\ufffdb", b"a\xffb")
    assert (result.stderr, result.stderr_bytes) == ("grün", "grün".encode())
    cut = await sandbox.exec("head -c 1000 /dev/zero", max_output_bytes=100)
    assert len(cut.stdout) == 100
    assert cut.truncated is not None
    assert (cut.truncated.stdout, cut.truncated.stderr) == (900, 0)


async def test_a_timeout_ends_the_command_and_keeps_the_shell(sandbox: AsyncSandbox) -> None:
    await sandbox.exec("x=5")
    result = await sandbox.exec("sleep 60", timeout=0.2)
    assert (result.timed_out, result.ok) == (True, False)
    assert (await sandbox.exec("echo $x")).stdout == "5\n"
    session = await sandbox.create_session("ci", command_timeout=0.2)
    assert (await session.exec("sleep 60")).timed_out
    assert not (await session.exec("sleep 0.4", timeout=20)).timed_out


async def test_output_arrives_while_the_command_runs(sandbox: AsyncSandbox) -> None:
    received: list[tuple[str, str]] = []
    command = "echo one; until [ -e go ]; do sleep 0.01; done; echo two >&2; exit 3"
    async with await sandbox.stream(command) as stream:
        async for piece in stream:
            received.append((piece.stream, piece.text))
            if piece.text == "one\n":
                # The command waits for the file: a client that got the first line late would never create it.
                await sandbox.write_file("go", "")
        result = await stream.result()
    assert received == [("stdout", "one\n"), ("stderr", "two\n")]
    assert (result.exit_code, result.stdout, result.stderr) == (3, "one\n", "two\n")


# Promises: Y5.
async def test_a_callback_receives_output_and_the_result_contains_all(sandbox: AsyncSandbox) -> None:
    received: list[Output] = []
    command = r"for i in 1 2 3; do echo $i; sleep 0.02; done; printf '\303' ; sleep 0.1; printf '\274'"
    result = await sandbox.exec(command, on_output=received.append)
    assert "".join(piece.text for piece in received) == result.stdout == "1\n2\n3\nü"
    assert b"".join(piece.data for piece in received) == result.stdout_bytes
    assert all("\ufffd" not in piece.text for piece in received)
    begin = received[0].offset
    assert [piece.offset - begin for piece in received if piece.data] == _starts(received)


def _starts(pieces: list[Output]) -> list[int]:
    starts, at = [], 0
    for piece in pieces:
        if piece.data:
            starts.append(at)
            at += len(piece.data)
    return starts


async def test_output_above_the_limit_streams_completely(sandbox: AsyncSandbox) -> None:
    size = 0
    async with await sandbox.stream("head -c 3000000 /dev/zero", max_output_bytes=1000) as stream:
        async for piece in stream:
            size += len(piece.data)
        result = await stream.result()
    assert (size, len(result.stdout_bytes)) == (3_000_000, 1000)
    assert result.truncated is not None
    assert result.truncated.stdout == 2_999_000


async def test_closing_a_stream_ends_its_command_by_default(sandbox: AsyncSandbox) -> None:
    async with await sandbox.stream("echo begun; sleep 1000"):
        pass
    # This is queued behind the abandoned command, which would otherwise run for 1000 s.
    assert (await sandbox.exec("echo free")).stdout == "free\n"
    session = sandbox.session("default")
    async with await session.stream(
        "until [ -e go ]; do sleep 0.01; done; echo on >ended", keep_running=True
    ):
        pass
    await sandbox.write_file("go", "")
    assert (await sandbox.exec("cat ended")).stdout == "on\n"


async def test_a_command_that_fails_can_be_raised(sandbox: AsyncSandbox) -> None:
    assert (await sandbox.exec("true")).check().ok
    with pytest.raises(CommandError, match="exited with code 2: no such thing") as raised:
        (await sandbox.exec("echo no such thing >&2; (exit 2)")).check()
    assert raised.value.result.exit_code == 2


async def test_sessions_are_created_found_listed_and_deleted(sandbox: AsyncSandbox) -> None:
    session = await sandbox.create_session(
        "build", name="for a person", env={"CI": "1"}, cwd="/usr", metadata={"job": 7}, ttl="1h"
    )
    assert (await session.exec("pwd; echo $CI; x=5")).stdout == "/usr\n1\n"
    assert (await sandbox.session("build").exec("echo $x")).stdout == "5\n"
    info = await session.info()
    assert (info.id, info.sandbox_id, info.cwd, info.env_names) == ("build", sandbox.id, "/usr", ("CI",))
    assert (info.metadata, info.ttl) == ({"job": 7, "name": "for a person"}, 3600)
    assert info.expires_at is not None
    assert (info.expires_at - info.created_at).total_seconds() == 3600
    made = await sandbox.create_session()
    with pytest.raises(RefusedError) as again:
        await sandbox.create_session("build")
    assert (again.value.status, again.value.code) == (409, "session_exists")
    assert [s.id async for s in sandbox.sessions(page=1)] == sorted(["build", "default", made.id])
    await sandbox.delete_session("build")
    with pytest.raises(NotFoundError) as gone:
        await session.info()
    assert gone.value.code == "no_session"
    await sandbox.exec("true")
    with pytest.raises(RefusedError) as refused:
        await sandbox.delete_session("default")
    assert refused.value.code == "default_session"


async def test_a_session_sees_what_it_was_granted_and_nothing_else(sandbox: AsyncSandbox) -> None:
    await sandbox.write_file("secret/key", "key")
    await sandbox.write_file("docs/a.txt", "a")
    access = FileAccess(read=["docs"], write=["out"])
    session = await sandbox.create_session("scoped", file_access=access)
    assert (await session.exec("ls; cat docs/a.txt; echo o >out/o")).stdout == "docs\nout\na"
    assert (await session.info()).file_access.read == ("docs",)
    assert await session.read_file("/workspace/out/o") == "o\n"
    assert not await session.exists("secret/key")
    with pytest.raises(NotFoundError):
        await session.read_file("secret/key")
    with pytest.raises(RefusedError) as denied:
        await session.write_file("docs/a.txt", "b")
    assert denied.value.status == 403


async def test_sessions_work_at_the_same_time(sandbox: AsyncSandbox) -> None:
    said: dict[str, str] = {}

    async def side(own: str, other: str) -> None:
        session = await sandbox.create_session(own)
        # Each waits for the other: run in sequence, they would never end.
        meet = f"touch {own}; until [ -e {other} ]; do sleep 0.01; done; echo met"
        said[own] = (await session.exec(meet, timeout=20)).stdout

    tasks = [io.Task(side, "left", "right"), io.Task(side, "right", "left")]
    for task in tasks:
        await task.join()
    assert said == {"left": "met\n", "right": "met\n"}


async def test_variables_are_set_for_what_runs_and_what_starts(sandbox: AsyncSandbox) -> None:
    await sandbox.exec("GONE=1; true")
    value = 'it\'s $HOME "and" `more`\n'
    await sandbox.set_env({"ODD": value, "GONE": None})
    assert (await sandbox.exec('printf %s "$ODD"')).stdout == value
    assert (await sandbox.exec("echo ${GONE-unset}")).stdout == "unset\n"
    assert (await sandbox.exec('printf %s "$ODD"', session="later")).stdout == value
    await sandbox.session("later").set_env({"ODD": None})
    assert (await sandbox.exec("echo ${ODD-unset}", session="later")).stdout == "unset\n"
    with pytest.raises(UsageError):
        await sandbox.set_env({"A=B; rm": "x"})


# Promises: Y1.
async def test_a_command_whose_response_is_lost_is_not_sent_twice(server: object, relay: Relay) -> None:
    async with AsyncIsolet(relay.url) as client, await client.create_sandbox() as sandbox:
        await sandbox.exec("true")
        task_error: list[Exception] = []

        async def lose() -> None:
            try:
                await sandbox.session("default").exec(
                    "echo x >>ran; touch begun; until [ -e go ]; do sleep 0.01; done", keep_running=True
                )
            except Exception as error:
                task_error.append(error)

        task = io.Task(lose)
        async with AsyncIsolet() as direct:
            other = direct.sandbox(sandbox.id)
            while not await other.exists("begun"):
                await io.sleep(0.02)
        relay.cut()
        await task.join()
        assert [getattr(error, "code", None) for error in task_error] == ["cut"]
        await sandbox.write_file("go", "")
        assert (await sandbox.exec("cat ran")).stdout == "x\n"


async def test_a_changed_session_starts_programs_with_its_environment(sandbox: AsyncSandbox) -> None:
    session = await sandbox.create_session("changed", env={"A": "old", "B": "b"})
    ended = await session.exec("exit 3")
    assert (ended.exit_code, ended.shell_ended) == (3, True)
    info = await session.update(env={"A": "new", "B": None}, command_timeout=5, metadata={"m": 1})
    assert (info.env_names, info.metadata) == (("A",), {"m": 1})
    result = await session.exec("echo $A$B")
    assert (result.stdout, result.shell_ended) == ("new\n", False)
    assert (await sandbox.run_program("true")).shell_ended is None
