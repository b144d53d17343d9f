"""Background processes: start, log, wait and kill."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from server import Server

from isolet import (
    AsyncIsolet,
    ConflictError,
    NotFoundError,
    ProcessEndedError,
    WaitTimeoutError,
)

pytestmark = pytest.mark.anyio


# Promises: J14.
async def test_a_process_runs_on_and_is_killed_with_all_it_started(
    client: AsyncIsolet, fresh: Callable[[], str]
) -> None:
    async with client.sandbox(fresh()) as sandbox:
        process = await sandbox.start_process("echo on; setsid sleep 1000 & sleep 1000", id="web")
        assert (await process.wait_for_log("on")).line == "on"
        assert (await process.info()).status == "running"
        with pytest.raises(WaitTimeoutError):
            await process.wait(timeout=0.05)
        with pytest.raises(ConflictError) as caught:
            await sandbox.start_process("true", id="web")
        assert caught.value.code == "id_in_use"
        ended = await process.kill()
        assert (ended.status, ended.exit_code, ended.remains) == ("killed", 143, False)
        with pytest.raises(ProcessEndedError):
            await process.wait_for_log("never")
        assert [info.id for info in await sandbox.processes()] == ["web"]
        await process.forget()
        with pytest.raises(NotFoundError):
            await process.info()
        assert await sandbox.processes() == []


# Promises: J14.
async def test_a_log_is_followed_to_its_end_over_a_killed_server(
    server: Server, fresh: Callable[[], str]
) -> None:
    async with AsyncIsolet() as client, client.sandbox(fresh()) as sandbox:
        process = await sandbox.start_process("for n in {1..60}; do echo $n; sleep 0.02; done; echo end >&2")
        out, err, killed = b"", b"", False
        async for piece in process.follow():
            assert piece.stream in ("stdout", "stderr")
            out += piece.data if piece.stream == "stdout" else b""
            err += piece.data if piece.stream == "stderr" else b""
            if len(out) > 20 and not killed:
                killed = True
                server.kill()
                server.start()
        assert out.decode() == "".join(f"{n}\n" for n in range(1, 61))
        assert err == b"end\n"
        log = await process.logs()
        assert (log.stdout, log.stderr, log.missed) == (out, err, 0)
        assert (await process.wait()).exit_code == 0


# Promises: J14.
async def test_input_reaches_a_process_and_a_port_is_waited_for(
    client: AsyncIsolet, fresh: Callable[[], str]
) -> None:
    async with client.sandbox(fresh()) as sandbox:
        cat = await sandbox.start_process(["cat"], stdin=True, env={"A": None})
        await cat.write("one\n")
        await cat.write(b"\xff\n", eof=True)
        assert (await cat.wait()).status == "exited"
        assert (await cat.logs()).stdout == b"one\n\xff\n"
        with pytest.raises(ConflictError):
            await cat.write("more")
        web = await sandbox.start_process("exec python3 -m http.server --bind 127.0.0.1 8222")
        await web.wait_for_port(8222, path="/", timeout=20)
        with pytest.raises(WaitTimeoutError):
            await web.wait_for_port(8223, timeout=0.05)
        await sandbox.forget_processes()
        assert await sandbox.processes() == []


async def test_a_wait_returns_groups_and_checks_the_exit_code(
    client: AsyncIsolet, fresh: Callable[[], str]
) -> None:
    async with client.sandbox(fresh()) as sandbox:
        process = await sandbox.start_process("echo ready on port 8080; exit 3")
        line = await process.wait_for_log(regex=r"(?P<what>\w+) (\d+)")
        assert line.groups == ("port 8080", "port", "8080")
        assert line.named_groups == {"what": "port"}
        assert (await process.wait(exit_codes=(1, 3))).exit_code == 3
        with pytest.raises(ProcessEndedError):
            await process.wait(exit_codes=(0, 0))
