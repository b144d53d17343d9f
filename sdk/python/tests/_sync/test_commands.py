"""Commands by HTTP: in sessions, by themselves, and as they are written."""
# Made by tools/make_sync.py from its async twin: change that one.

from __future__ import annotations

import gc

import pytest
from relay import Relay

from isolet import (
    Isolet,
    Sandbox,
    CommandError,
    FileAccess,
    NotFoundError,
    Output,
    RefusedError,
    UsageError,
)
from isolet._sync import io

pytestmark = pytest.mark.anyio


def test_a_stream_that_is_left_without_a_word_is_let_go_at_once(sandbox: Sandbox) -> None:
    # The collector that lets go of it otherwise may come while a connection is being taken, and wait for
    # that connection for ever.
    sandbox.write_file("large", b"x" * 10_000_000)
    gc.disable()
    try:
        for _ in sandbox.stream("echo a; sleep 1000", session="left"):
            break
        for _ in sandbox.events(after=0):
            break
        for _ in sandbox.stream_file("large"):
            break
        open_now = 0
        for _ in range(100):
            # Of the client's connections those that carry an answer.
            pool = sandbox._connection._http._transport._pool  # type: ignore[attr-defined]
            open_now = sum(not one.is_idle() for one in pool.connections)
            if open_now == 0:
                break
            io.sleep(0.05)
        assert open_now == 0
        assert (sandbox.exec("echo free", session="left", timeout=20)).stdout == "free\n"
    finally:
        gc.enable()


def test_commands_of_the_default_session_share_directory_and_variables(sandbox: Sandbox) -> None:
    result = sandbox.exec("cd /tmp; export GREETING=hello; echo out; echo err >&2; (exit 3)")
    assert (result.exit_code, result.ok, result.stdout, result.stderr) == (3, False, "out\n", "err\n")
    assert (result.session, result.timed_out, result.truncated) == ("default", False, None)
    assert 0 < result.duration < 10
    assert (sandbox.exec("pwd; echo $GREETING")).stdout == "/tmp\nhello\n"


def test_without_a_default_session_commands_run_by_themselves(client: Isolet) -> None:
    with client.create_sandbox(default_session=False) as sandbox:
        sandbox.exec("cd /tmp")
        result = sandbox.exec("pwd")
        assert (result.stdout, result.session) == ("/workspace\n", None)


def test_a_program_has_arguments_and_no_shell(sandbox: Sandbox) -> None:
    result = sandbox.run_program(["printf", "%s\n", "$HOME; echo 'x'"], env={"A": "b"})
    assert result.check().stdout == "$HOME; echo 'x'\n"
    assert (sandbox.run_program("exit 7")).exit_code == 7
    with pytest.raises(NotFoundError) as raised:
        sandbox.run_program(["no-such-program"])
    assert raised.value.code == "not_found"
    with pytest.raises(UsageError):
        sandbox.exec(["ls"])  # type: ignore[arg-type]


def test_a_program_begins_where_its_session_was_made_and_does_not_wait_for_it(
    sandbox: Sandbox,
) -> None:
    sandbox.create_session("dev", cwd="/usr", env={"A": "made"})
    with sandbox.stream("echo begun; sleep 60", session="dev") as busy:
        assert (busy.__next__()).text == "begun\n"
        result = sandbox.run_program("pwd; echo $A", session="dev")
        assert (result.stdout, result.session) == ("/usr\nmade\n", "dev")


def test_input_directory_and_environment_hold_for_one_command(sandbox: Sandbox) -> None:
    result = sandbox.exec(
        "cat; pwd; echo $A ${HOME-none}", stdin="in\n", cwd="/tmp", env={"A": "b", "HOME": None}
    )
    assert result.stdout == "in\n/tmp\nb none\n"
    assert (sandbox.exec("pwd; echo ${A-unset}")).stdout == "/workspace\nunset\n"
    assert (sandbox.exec("cat", stdin=b"\xff\x00\n")).stdout_bytes == b"\xff\x00\n"
    assert (sandbox.exec("echo out; echo err >&2", env={})).stderr == "err\n"
    assert (sandbox.session("default").exec("echo err >&2", merge=True)).stdout == "err\n"


def test_bytes_are_exact_and_what_is_too_much_is_told(sandbox: Sandbox) -> None:
    result = sandbox.exec(r"printf 'a\377b'; printf 'grün' >&2")
    assert (result.stdout, result.stdout_bytes) == ("a\ufffdb", b"a\xffb")
    assert (result.stderr, result.stderr_bytes) == ("grün", "grün".encode())
    cut = sandbox.exec("head -c 1000 /dev/zero", max_output_bytes=100)
    assert len(cut.stdout) == 100
    assert cut.truncated is not None
    assert (cut.truncated.stdout, cut.truncated.stderr) == (900, 0)


def test_a_timeout_ends_the_command_and_keeps_the_shell(sandbox: Sandbox) -> None:
    sandbox.exec("x=5")
    result = sandbox.exec("sleep 60", timeout=0.2)
    assert (result.timed_out, result.ok) == (True, False)
    assert (sandbox.exec("echo $x")).stdout == "5\n"
    session = sandbox.create_session("ci", command_timeout=0.2)
    assert (session.exec("sleep 60")).timed_out
    assert not (session.exec("sleep 0.4", timeout=20)).timed_out


def test_output_is_heard_as_it_is_written(sandbox: Sandbox) -> None:
    heard: list[tuple[str, str]] = []
    command = "echo one; until [ -e go ]; do sleep 0.01; done; echo two >&2; exit 3"
    with sandbox.stream(command) as stream:
        for piece in stream:
            heard.append((piece.stream, piece.text))
            if piece.text == "one\n":
                # It could not go on if its first line were held back until its end.
                sandbox.write_file("go", "")
        result = stream.result()
    assert heard == [("stdout", "one\n"), ("stderr", "two\n")]
    assert (result.exit_code, result.stdout, result.stderr) == (3, "one\n", "two\n")


def test_a_callback_hears_output_and_the_result_has_it_all(sandbox: Sandbox) -> None:
    heard: list[Output] = []
    command = r"for i in 1 2 3; do echo $i; sleep 0.02; done; printf '\303' ; sleep 0.1; printf '\274'"
    result = sandbox.exec(command, on_output=heard.append)
    assert "".join(piece.text for piece in heard) == result.stdout == "1\n2\n3\nü"
    assert b"".join(piece.data for piece in heard) == result.stdout_bytes
    assert all("\ufffd" not in piece.text for piece in heard)
    begin = heard[0].offset
    assert [piece.offset - begin for piece in heard if piece.data] == _starts(heard)


def _starts(pieces: list[Output]) -> list[int]:
    starts, at = [], 0
    for piece in pieces:
        if piece.data:
            starts.append(at)
            at += len(piece.data)
    return starts


def test_more_output_than_is_kept_streams_whole(sandbox: Sandbox) -> None:
    size = 0
    with sandbox.stream("head -c 3000000 /dev/zero", max_output_bytes=1000) as stream:
        for piece in stream:
            size += len(piece.data)
        result = stream.result()
    assert (size, len(result.stdout_bytes)) == (3_000_000, 1000)
    assert result.truncated is not None
    assert result.truncated.stdout == 2_999_000


def test_a_stream_that_is_left_ends_its_command_unless_told(sandbox: Sandbox) -> None:
    with sandbox.stream("echo begun; sleep 1000"):
        pass
    # Behind the command that was left: it would wait for 1000 s.
    assert (sandbox.exec("echo free")).stdout == "free\n"
    session = sandbox.session("default")
    with session.stream(
        "until [ -e go ]; do sleep 0.01; done; echo on >ended", keep_running=True
    ):
        pass
    sandbox.write_file("go", "")
    assert (sandbox.exec("cat ended")).stdout == "on\n"


def test_a_command_that_fails_can_be_raised(sandbox: Sandbox) -> None:
    assert (sandbox.exec("true")).check().ok
    with pytest.raises(CommandError, match="ended with 2: no such thing") as raised:
        (sandbox.exec("echo no such thing >&2; (exit 2)")).check()
    assert raised.value.result.exit_code == 2


def test_sessions_are_made_found_listed_and_deleted(sandbox: Sandbox) -> None:
    session = sandbox.create_session(
        "build", name="for a person", env={"CI": "1"}, cwd="/usr", metadata={"job": 7}, ttl="1h"
    )
    assert (session.exec("pwd; echo $CI; x=5")).stdout == "/usr\n1\n"
    assert (sandbox.session("build").exec("echo $x")).stdout == "5\n"
    info = session.info()
    assert (info.id, info.sandbox_id, info.cwd, info.env_names) == ("build", sandbox.id, "/usr", ("CI",))
    assert (info.metadata, info.ttl) == ({"job": 7, "name": "for a person"}, 3600)
    assert info.expires_at is not None
    assert (info.expires_at - info.created_at).total_seconds() == 3600
    made = sandbox.create_session()
    with pytest.raises(RefusedError) as again:
        sandbox.create_session("build")
    assert (again.value.status, again.value.code) == (409, "session_exists")
    assert [s.id for s in sandbox.sessions(page=1)] == sorted(["build", "default", made.id])
    sandbox.delete_session("build")
    with pytest.raises(NotFoundError) as gone:
        session.info()
    assert gone.value.code == "no_session"
    sandbox.exec("true")
    with pytest.raises(RefusedError) as kept:
        sandbox.delete_session("default")
    assert kept.value.code == "default_session"


def test_a_session_sees_what_it_was_granted_and_nothing_else(sandbox: Sandbox) -> None:
    sandbox.write_file("secret/key", "key")
    sandbox.write_file("docs/a.txt", "a")
    access = FileAccess(read=["docs"], write=["out"])
    session = sandbox.create_session("scoped", file_access=access)
    assert (session.exec("ls; cat docs/a.txt; echo o >out/o")).stdout == "docs\nout\na"
    assert (session.info()).file_access.read == ("docs",)
    assert session.read_file("/workspace/out/o") == "o\n"
    assert not session.exists("secret/key")
    with pytest.raises(NotFoundError):
        session.read_file("secret/key")
    with pytest.raises(RefusedError) as denied:
        session.write_file("docs/a.txt", "b")
    assert denied.value.status == 403


def test_sessions_work_at_the_same_time(sandbox: Sandbox) -> None:
    said: dict[str, str] = {}

    def side(own: str, other: str) -> None:
        session = sandbox.create_session(own)
        # Each waits for the other: one after the other would never end.
        meet = f"touch {own}; until [ -e {other} ]; do sleep 0.01; done; echo met"
        said[own] = (session.exec(meet, timeout=20)).stdout

    tasks = [io.Task(side, "left", "right"), io.Task(side, "right", "left")]
    for task in tasks:
        task.join()
    assert said == {"left": "met\n", "right": "met\n"}


def test_variables_are_set_for_what_runs_and_what_starts(sandbox: Sandbox) -> None:
    sandbox.exec("GONE=1; true")
    value = 'it\'s $HOME "and" `more`\n'
    sandbox.set_env({"ODD": value, "GONE": None})
    assert (sandbox.exec('printf %s "$ODD"')).stdout == value
    assert (sandbox.exec("echo ${GONE-unset}")).stdout == "unset\n"
    assert (sandbox.exec('printf %s "$ODD"', session="later")).stdout == value
    sandbox.session("later").set_env({"ODD": None})
    assert (sandbox.exec("echo ${ODD-unset}", session="later")).stdout == "unset\n"
    with pytest.raises(UsageError):
        sandbox.set_env({"A=B; rm": "x"})


def test_a_command_whose_answer_is_lost_is_not_sent_twice(server: object, relay: Relay) -> None:
    with Isolet(relay.url) as client, client.create_sandbox() as sandbox:
        sandbox.exec("true")
        task_error: list[Exception] = []

        def lose() -> None:
            try:
                sandbox.session("default").exec(
                    "echo x >>ran; touch begun; sleep 0.3", keep_running=True
                )
            except Exception as error:
                task_error.append(error)

        task = io.Task(lose)
        with Isolet() as direct:
            other = direct.sandbox(sandbox.id)
            while not other.exists("begun"):
                io.sleep(0.02)
        relay.cut()
        task.join()
        assert [getattr(error, "code", None) for error in task_error] == ["cut"]
        assert (sandbox.exec("cat ran")).stdout == "x\n"
