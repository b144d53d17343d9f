"""Tests without a server: argument conversion, parsing of events and frames, and reconnects."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import isolet
from isolet import (
    NotFoundError,
    ServerError,
    ShellClosedError,
    UnreachableError,
    UsageError,
    calls,
    config,
    file_calls,
    values,
)
from isolet.errors import error_from_response
from isolet.frames import OutputQueue, Run, ShellState
from isolet.results import Collector, Output
from isolet.sse import Parser

ROOT = Path(__file__).resolve().parent.parent


# Promises: Y10.
def test_the_sync_client_is_generated_from_the_async_one() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools/make_sync.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_both_halves_have_the_same_names() -> None:
    pairs = [(isolet.AsyncIsolet, isolet.Isolet), (isolet.AsyncSandbox, isolet.Sandbox)]
    pairs += [(isolet.AsyncSession, isolet.Session), (isolet.AsyncShell, isolet.Shell)]
    for one, other in pairs:
        names = [{name for name in dir(kind) if name[0] != "_"} for kind in (one, other)]
        assert names[0] == names[1]


def test_durations_are_seconds_text_or_timedeltas() -> None:
    assert [values.seconds(value) for value in (0, 1.5, "90s", "10m", "2h", "1d", timedelta(minutes=1))] == [
        0, 1.5, 90, 600, 7200, 86_400, 60,
    ]  # fmt: skip
    assert (values.milliseconds(0.0001), values.whole_seconds(0.2)) == (1, 1)
    for bad in ("", "10", "m", "1.5h", "-1s", -1, float("nan"), float("inf")):
        with pytest.raises(UsageError):
            values.seconds(bad)


# Promises: Y8.
def test_paths_and_ids_are_names_and_nothing_else() -> None:
    assert values.quote_path("a b/ü#?%") == "a%20b/%C3%BC%23%3F%25"
    assert values.quote_path("/etc/hosts") == "%2Fetc/hosts"
    assert values.quote_path("../a/./b") == "%2E%2E/a/%2E/b"
    assert values.quote_path(b"\xff") == "%FF"
    assert (values.quote_id(".."), values.quote_id("a/b")) == ("%2E%2E", "a%2Fb")
    assert values.path_field("to", b"\xff") == {"to_b64": "/w=="}
    assert calls.next_page('</v1/sandboxes?cursor=x>; rel="next"') is not None
    for link in (None, "", '<//other.example/x>; rel="next"', '<http://other.example/>; rel="next"'):
        assert calls.next_page(link) is None


def test_variables_are_words() -> None:
    assert values.export_commands({"A": "it's", "B": None}) == "export A='it'\\''s'\nunset B"
    assert values.export_commands({}) == ":"


# Promises: Y1.
def test_only_what_can_be_done_twice_is_sent_twice() -> None:
    write = file_calls.with_body(file_calls.write_file("/at", "append=1"), b"")
    assert write.repeatable
    assert not file_calls.with_body(file_calls.write_file("/at", "f", append=True), b"").repeatable
    assert not calls.exec_call("/at", "true", in_shell=True).repeatable
    assert not file_calls.file_operation("/at", "move", "a", "b").repeatable
    create = calls.create_sandbox("a")
    assert create.repeatable
    assert (
        calls.with_new_idempotency_key(create).headers["idempotency-key"] != create.headers["idempotency-key"]
    )


def test_waits_grow_and_end() -> None:
    assert 0.05 <= config.retry_delay_s(0) <= 0.1
    assert 2.5 <= config.retry_delay_s(100) <= 5
    assert config.retry_delay_s(0, "2") == 2
    assert config.retry_delay_s(0, "999999") == 5


def test_a_response_that_is_not_json_becomes_an_error() -> None:
    error = error_from_response(502, b"<html>bad gateway</html>", {"x-request-id": "r-1"})
    assert isinstance(error, ServerError)
    assert (error.code, error.status, error.request_id) == ("unknown", 502, "r-1")
    assert "bad gateway" in str(error)
    not_found = error_from_response(404, b'{"error":"no_session","message":"m","hint":"h"}', {})
    assert isinstance(not_found, NotFoundError)
    assert str(not_found) == "m (no_session): h"


def test_events_are_complete_however_their_bytes_are_split() -> None:
    body = (
        'id: 1\nevent: stdout\ndata: {"data":"grün"}\n\n: alive\n\nevent: exit\ndata: {"code":0}\n\n'.encode()
    )
    for size in (1, 2, 3, 7, len(body)):
        parser = Parser()
        found = [event for at in range(0, len(body), size) for event in parser.take(body[at : at + size])]
        assert [(event.name, event.data) for event in found] == [
            ("stdout", {"data": "grün"}),
            ("exit", {"code": 0}),
        ]
    with pytest.raises(UnreachableError):
        Parser().take(b"event: x\ndata: {no json\n\n")


def test_collected_output_ends_at_the_first_gap() -> None:
    collector = Collector("c", limit_bytes=4)
    assert collector.take("stdout", 0, "aaü".encode()).text == "aaü"
    collector.take("stdout", 4, b"more")
    result = collector.result({"exit_code": 0, "duration_ms": 1.0, "out_bytes": 8})
    assert (result.stdout, result.truncated) == ("aaü", isolet.Truncated(4, 0))
    split = Collector("c", limit_bytes=3)
    split.take("stdout", 0, "aaü".encode())
    assert split.result({"exit_code": 0, "duration_ms": 1.0}).stdout == "aa"


# Promises: Y5.
def test_unread_output_is_bounded_and_counted() -> None:
    pieces = OutputQueue(limit_bytes=10)
    for at in range(0, 40, 4):
        pieces.add(Output("stdout", "xxxx", b"xxxx", at))
    first = pieces.next()
    assert first is not None
    assert (first.offset, first.missed) == (32, 32)


def _run(name: str) -> Run:
    return Run(name, {"type": "shell_run", "id": name, "command": name})


def _output(name: str, data: bytes, offset: int = 0) -> bytes:
    return struct.pack("!BQH", 1, offset, len(name)) + name.encode() + data


def _exit(name: str, seq: int, **more: Any) -> str:
    return json.dumps({"type": "shell_exit", "id": name, "code": 0, "seq": seq, "duration_ms": 1.0, **more})


def _ids(frames: list[str]) -> list[str]:
    return [json.loads(frame)["id"] for frame in frames]


# Promises: Y2.
def test_commands_that_may_be_lost_are_sent_after_a_fence_and_in_order() -> None:
    shell = ShellState()
    runs = [_run(name) for name in ("a", "b", "c")]
    assert [_ids(shell.start(run)) for run in runs] == [["a"], ["b"], ["c"]]
    shell.take(_output("a", b"x"))
    (fence,) = shell.resume_frames()
    assert json.loads(fence)["command"] == "(exit $?)"
    # Commands started now wait until it is known which have arrived.
    late = _run("d")
    assert shell.start(late) == []
    # One of the two had arrived.
    shell.take(_exit("b", 2))
    assert shell.deferred_frames() == []
    shell.take(_exit(json.loads(fence)["id"], 3))
    assert _ids(shell.deferred_frames()) == ["c", "d"]
    assert shell.deferred_frames() == []
    assert _ids(shell.start(_run("e"))) == ["e"]
    assert [run.finished for run in runs] == [False, True, False]


# Promises: Y2.
def test_a_lost_fence_is_sent_again() -> None:
    shell = ShellState()
    shell.start(_run("a"))
    (first,) = _ids(shell.resume_frames())
    held = _run("b")
    shell.start(held)
    (second,) = _ids(shell.resume_frames())
    assert first != second
    # This end belongs to the first fence, so it says nothing about the second connection.
    shell.take(_exit(first, 1))
    assert shell.deferred_frames() == []
    shell.take(_exit(second, 2))
    assert _ids(shell.deferred_frames()) == ["a", "b"]
    # The connection is lost again during the resend.
    assert len(shell.resume_frames()) == 1


def test_a_command_with_output_is_not_sent_again() -> None:
    shell = ShellState()
    shell.start(_run("a"))
    shell.take(_output("a", b"x", 7))
    assert shell.resume_frames() == []
    assert shell.position == (8, 0, 0)
    assert ShellState().resume_frames() == []


def test_a_refused_signal_does_not_end_its_command() -> None:
    shell = ShellState()
    run, other = _run("a"), _run("b")
    shell.start(run)
    shell.start(other)
    run.control_frames_sent = 1
    refusal = {"type": "shell_error", "id": "a", "error": "bad_request", "message": "no such command"}
    shell.take(json.dumps(refusal))
    assert not run.finished
    shell.take(json.dumps({**refusal, "id": "b", "error": "queue_full"}))
    assert other.error is not None
    assert other.error.code == "queue_full"


def test_the_exit_of_a_private_shell_fails_unfinished_commands() -> None:
    shell = ShellState()
    run = _run("a")
    shell.start(run)
    shell.take(json.dumps({"type": "shell_closed", "code": 3, "cause": "exit"}))
    assert isinstance(run.error, ShellClosedError)
    with pytest.raises(ShellClosedError):
        shell.start(_run("b"))
    of_session = ShellState("dev")
    of_session.take(json.dumps({"type": "shell_closed", "code": 3, "cause": "exit"}))
    assert _ids(of_session.start(_run("b"))) == ["b"]
