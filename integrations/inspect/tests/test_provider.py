"""What the checks of Inspect do not cover: errors, large data, cleanup, settings and the example."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from inspect_ai.util import (
    OutputLimitExceededError,
    SandboxUnavailableError,
    SandboxUserUnsupportedError,
)
from inspect_ai.util._sandbox.limits import override_max_exec_output_size, override_max_read_file_size
from inspect_ai.util._sandbox.registry import registry_find_sandboxenv
from isolet import AsyncIsolet
from pydantic import ValidationError

from isolet_inspect import IsoletSandboxConfig, IsoletSandboxEnvironment
from isolet_inspect.commands import OwnUser
from isolet_inspect.config import resolve_config

pytestmark = pytest.mark.anyio
EXAMPLE = Path(__file__).parents[1] / "examples/fix_the_bug.py"


async def create(config: IsoletSandboxConfig | None = None) -> IsoletSandboxEnvironment:
    environments = await IsoletSandboxEnvironment.sample_init("provider", config, {})
    return environments["default"].as_type(IsoletSandboxEnvironment)


async def destroy(environment: IsoletSandboxEnvironment) -> None:
    await IsoletSandboxEnvironment.sample_cleanup("provider", None, {"default": environment}, True)


@pytest.fixture(scope="module")
async def box() -> AsyncIterator[IsoletSandboxEnvironment]:
    environment = await create()
    yield environment
    await destroy(environment)


async def exists(id: str) -> bool:
    async with AsyncIsolet() as client:
        return id in [one.id async for one in client.sandboxes() if one.state != "destroyed"]


def test_the_entry_point_registers_the_provider() -> None:
    assert registry_find_sandboxenv("isolet") is IsoletSandboxEnvironment


async def test_a_missing_program_and_a_missing_directory_are_failed_results(
    box: IsoletSandboxEnvironment,
) -> None:
    missing = await box.exec(["no-such-program"])
    assert (missing.success, missing.returncode) == (False, 127)
    assert "no-such-program" in missing.stderr
    nowhere = await box.exec(["true"], cwd="/no/such/directory")
    assert (nowhere.success, nowhere.returncode) == (False, 126)


async def test_large_commands_fail_as_small_ones_do_and_leave_no_files(box: IsoletSandboxEnvironment) -> None:
    filler = "x" * 200_000
    many = [filler[:100_000], filler[100_000:]]
    assert (await box.exec(["no-such-program", *many])).returncode == 127
    with pytest.raises(PermissionError):
        await box.exec(["/etc/passwd", *many])
    result = await box.exec(["/bin/sh", "-c", 'cat; echo "$#" >&2', "sh", *many], input=filler)
    assert (result.stdout, result.stderr) == (filler, "2\n")
    left = await box.exec(["ls", "-A", "/tmp"])
    assert "isolet-inspect" not in left.stdout


async def test_output_and_files_above_the_limits_are_refused(box: IsoletSandboxEnvironment) -> None:
    with override_max_exec_output_size(1000):
        with pytest.raises(OutputLimitExceededError) as error:
            await box.exec(["head", "-c", "2000", "/dev/zero"])
        assert error.value.truncated_output == "\0" * 1000
        assert (await box.exec(["head", "-c", "1000", "/dev/zero"])).success
    # A file whose size is not known before it is read.
    assert "MemTotal" in await box.read_file("/proc/meminfo")
    with override_max_read_file_size(100), pytest.raises(OutputLimitExceededError):
        await box.read_file("/proc/meminfo")


async def test_text_keeps_its_line_ends_and_must_be_utf_8(box: IsoletSandboxEnvironment) -> None:
    await box.write_file("lines", "a\r\nb\r")
    assert await box.read_file("lines") == "a\r\nb\r"
    await box.write_file("bytes", b"\xc3\x28")
    with pytest.raises(UnicodeDecodeError):
        await box.read_file("bytes")
    await box.write_file("file", "")
    for name in ("file/below", "bytes/below"):
        with pytest.raises(NotADirectoryError):
            await box.write_file(name, "x")


async def test_users_by_name_and_by_number(box: IsoletSandboxEnvironment) -> None:
    assert (await box.exec(["id", "-u"], user="root")).stdout == "0\n"
    assert (await box.exec(["id", "-u"], user="1234")).stdout == "1234\n"
    keeps = await box.exec(
        ["/bin/sh", "-c", 'echo "$A|$1|$PWD"', "sh", "-l it's"], user="nobody", env={"A": "b"}
    )
    assert keeps.stdout == "b|-l it's|/workspace\n"
    with pytest.raises(PermissionError):
        await box.exec(["/etc/passwd"], user="nobody")


async def test_a_wrapper_is_not_looked_up_in_the_path_of_the_command(box: IsoletSandboxEnvironment) -> None:
    await box.write_file("/opt/own/su", "#!/bin/sh\necho stolen\n")
    await box.exec(["chmod", "+x", "/opt/own/su"])
    result = await box.exec(["id", "-un"], user="nobody", env={"PATH": "/opt/own:/usr/bin:/bin"})
    assert result.stdout == "nobody\n"


def test_only_root_becomes_another_user() -> None:
    own = OwnUser("1000", "app")
    assert own.run_as(["id"], "app") == own.run_as(["id"], "1000") == own.run_as(["id"], None) == ["id"]
    with pytest.raises(SandboxUserUnsupportedError, match="app"):
        own.run_as(["id"], "root")


async def test_a_server_that_is_not_there_is_unavailable(
    box: IsoletSandboxEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    async with AsyncIsolet(f"http://127.0.0.1:{port}", "key", retries=0) as nobody:
        monkeypatch.setattr(box.sandbox, "_connection", nobody._connection)
        with pytest.raises(SandboxUnavailableError):
            await box.exec(["true"])
        with pytest.raises(ConnectionError):
            await box.read_file("file")


async def test_every_cleanup_deletes_what_it_should() -> None:
    await IsoletSandboxEnvironment.task_init("provider", None)
    first, second, third = [await create() for _ in range(3)]
    async with AsyncIsolet() as client:
        foreign = await client.create_sandbox()
    await destroy(first)
    assert not await exists(first.sandbox.id)
    await IsoletSandboxEnvironment.task_cleanup("another task", None, True)
    await IsoletSandboxEnvironment.task_cleanup("provider", None, False)
    assert await exists(second.sandbox.id)
    await IsoletSandboxEnvironment.cli_cleanup(second.sandbox.id)
    assert [await exists(one.sandbox.id) for one in (second, third)] == [False, True]
    await IsoletSandboxEnvironment.task_cleanup("provider", None, True)
    assert not await exists(third.sandbox.id)
    fourth = await create()
    await IsoletSandboxEnvironment.cli_cleanup(None)
    assert [await exists(one) for one in (fourth.sandbox.id, foreign.id)] == [False, True]


async def test_settings_reach_the_sandbox(tmp_path: Path) -> None:
    file = tmp_path / "isolet.yaml"
    file.write_text("memory_mib: 300\nttl: 2h\nenv:\n  LEVEL: 3\n")
    config = resolve_config(str(file))
    # A log file holds the settings as JSON.
    assert IsoletSandboxEnvironment.config_deserialize(config.model_dump(mode="json")) == config
    environment = await create(config)
    info = await environment.sandbox.info()
    assert (info.memory_mib, info.ttl, info.sleep_after) == (300, 7200, None)
    assert (await environment.exec(["printenv", "LEVEL"])).stdout == "3\n"
    assert environment.sandbox.id in (await environment.connection()).command
    await destroy(environment)


def test_unknown_settings_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "isolet.yaml"
    file.write_text("memory: 300\n")
    with pytest.raises(ValidationError, match="memory"):
        resolve_config(str(file))
    file.write_text("- a list\n")
    with pytest.raises(ValueError, match="mapping"):
        resolve_config(str(file))


def test_the_example_passes() -> None:
    done = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "accuracy: 1.0" in done.stdout
