"""What the tests of LangChain do not cover: both ways to run commands, limits, async and the example."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from isolet import AsyncIsolet, Isolet, Sandbox

from langchain_isolet import IsoletSandbox

EXAMPLE = Path(__file__).parents[1] / "examples/fix_the_bug.py"


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    with Isolet() as client, client.create_sandbox() as sandbox:
        yield sandbox


def test_both_streams_are_one_in_the_order_of_the_writes(box: Sandbox) -> None:
    order = "for i in 1 2 3; do echo out$i; echo err$i >&2; done; exit 3"
    for backend in (IsoletSandbox(sandbox=box), IsoletSandbox(sandbox=box, session="order")):
        response = backend.execute(f"({order})")
        assert response.output == "out1\nerr1\nout2\nerr2\nout3\nerr3\n"
        assert (response.exit_code, response.truncated) == (3, False)


def test_commands_share_a_shell_only_in_a_session(box: Sandbox) -> None:
    apart = IsoletSandbox(sandbox=box)
    apart.execute("cd /usr; export LEVEL=3")
    assert apart.execute('echo "$PWD $LEVEL"').output == "/workspace \n"
    together = IsoletSandbox(sandbox=box, session="agent")
    together.execute("cd /usr; export LEVEL=3")
    assert together.execute('echo "$PWD $LEVEL"').output == "/usr 3\n"
    # The file tools of Deep Agents run commands too.
    together.write("/tmp/in-session.txt", "one\ntwo\n")
    read = together.read("/tmp/in-session.txt")
    assert read.file_data is not None
    assert "two" in read.file_data["content"]


def test_a_timeout_ends_the_command_and_says_so(box: Sandbox) -> None:
    for backend in (IsoletSandbox(sandbox=box, timeout=1), IsoletSandbox(sandbox=box, session="slow")):
        response = backend.execute("echo begun; sleep 50", timeout=1)
        assert response.exit_code == 124
        assert response.output == "begun\nCommand timed out after 1 seconds"
    assert "sleep 50" not in IsoletSandbox(sandbox=box).execute("ps -eo args | grep -v grep").output


def test_output_above_the_limit_is_cut(box: Sandbox) -> None:
    response = IsoletSandbox(sandbox=box, max_output_bytes=1000).execute(
        "head -c 2000 /dev/zero | tr '\\0' x"
    )
    assert (response.output, response.exit_code, response.truncated) == ("x" * 1000, 0, True)


def test_files_that_cannot_be_written_or_read_do_not_stop_the_others(box: Sandbox) -> None:
    backend = IsoletSandbox(sandbox=box)
    written = backend.upload_files(
        [("/tmp", b"x"), ("relative", b"x"), ("/tmp/good", b"x"), ("/proc/x", b"x")]
    )
    assert [one.error for one in written] == ["is_directory", "invalid_path", None, "permission_denied"]
    read = backend.download_files(["/tmp", "relative", "/tmp/good", "/tmp/missing", "/proc/1/mem"])
    assert [one.error for one in read] == [
        "is_directory",
        "invalid_path",
        None,
        "file_not_found",
        "permission_denied",
    ]


async def test_async_methods_end_a_command_whose_call_is_cancelled() -> None:
    async with AsyncIsolet() as client, await client.create_sandbox() as sandbox:
        with Isolet() as blocking:
            backend = IsoletSandbox(sandbox=blocking.sandbox(sandbox.id), async_sandbox=sandbox)
            first, second = await asyncio.gather(backend.aexecute("echo one"), backend.aexecute("echo two"))
            assert (first.output, second.output) == ("one\n", "two\n")
            await backend.aupload_files([("/tmp/async", b"data")])
            [content] = await backend.adownload_files(["/tmp/async"])
            assert content.content == b"data"
            call = asyncio.create_task(backend.aexecute("touch /tmp/begun; sleep 1000"))
            until = time.monotonic() + 20
            while (await backend.aexecute("test -e /tmp/begun")).exit_code != 0:
                assert time.monotonic() < until
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            while "sleep 1000" in (await backend.aexecute("ps -eo args | grep -v grep")).output:
                assert time.monotonic() < until


async def test_the_two_sandboxes_must_be_one() -> None:
    async with AsyncIsolet() as client:
        with Isolet() as blocking, pytest.raises(ValueError, match="other"):
            IsoletSandbox(sandbox=blocking.sandbox("one"), async_sandbox=client.sandbox("other"))


def test_the_example_passes() -> None:
    done = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the tests pass" in done.stdout
