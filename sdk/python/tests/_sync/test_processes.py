"""Processes in the background: started, followed, waited for, ended."""
# Made by tools/make_sync.py from its async twin: change that one.

from __future__ import annotations

from collections.abc import Callable

import pytest
from server import Server

from isolet import (
    Isolet,
    ConflictError,
    NotFoundError,
    ProcessEndedError,
    WaitTimeoutError,
)

pytestmark = pytest.mark.anyio


def test_a_process_runs_on_and_is_killed_with_all_it_started(
    client: Isolet, fresh: Callable[[], str]
) -> None:
    with client.sandbox(fresh()) as sandbox:
        process = sandbox.start_process("echo on; setsid sleep 1000 & sleep 1000", id="web")
        assert (process.wait_for_log("on")).line == "on"
        assert (process.info()).status == "running"
        with pytest.raises(WaitTimeoutError):
            process.wait(timeout=0.05)
        with pytest.raises(ConflictError) as caught:
            sandbox.start_process("true", id="web")
        assert caught.value.code == "id_in_use"
        ended = process.kill()
        assert (ended.status, ended.exit_code, ended.remains) == ("killed", 143, False)
        with pytest.raises(ProcessEndedError):
            process.wait_for_log("never")
        assert [info.id for info in sandbox.processes()] == ["web"]
        process.forget()
        with pytest.raises(NotFoundError):
            process.info()
        assert sandbox.processes() == []


def test_a_log_is_followed_to_its_end_over_a_killed_server(
    server: Server, fresh: Callable[[], str]
) -> None:
    with Isolet() as client, client.sandbox(fresh()) as sandbox:
        process = sandbox.start_process("for n in {1..60}; do echo $n; sleep 0.02; done; echo end >&2")
        out, err, killed = b"", b"", False
        for piece in process.follow():
            assert piece.stream in ("stdout", "stderr")
            out += piece.data if piece.stream == "stdout" else b""
            err += piece.data if piece.stream == "stderr" else b""
            if len(out) > 20 and not killed:
                killed = True
                server.kill()
                server.start()
        assert out.decode() == "".join(f"{n}\n" for n in range(1, 61))
        assert err == b"end\n"
        log = process.logs()
        assert (log.stdout, log.stderr, log.missed) == (out, err, 0)
        assert (process.wait()).exit_code == 0


def test_input_reaches_a_process_and_a_port_is_waited_for(
    client: Isolet, fresh: Callable[[], str]
) -> None:
    with client.sandbox(fresh()) as sandbox:
        cat = sandbox.start_process(["cat"], stdin=True, env={"A": None})
        cat.write("one\n")
        cat.write(b"\xff\n", eof=True)
        assert (cat.wait()).status == "exited"
        assert (cat.logs()).stdout == b"one\n\xff\n"
        with pytest.raises(ConflictError):
            cat.write("more")
        web = sandbox.start_process("exec python3 -m http.server --bind 127.0.0.1 8222")
        web.wait_for_port(8222, path="/", timeout=20)
        with pytest.raises(WaitTimeoutError):
            web.wait_for_port(8223, timeout=0.05)
        sandbox.forget_processes()
        assert sandbox.processes() == []
