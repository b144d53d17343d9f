"""The provider: one sandbox of the server for each sample."""

from __future__ import annotations

import contextlib
import shlex
import uuid
from collections.abc import AsyncIterator
from contextvars import ContextVar
from pathlib import PurePosixPath
from typing import Any, Literal, overload

import anyio
from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxConnection,
    SandboxEnvironment,
    SandboxEnvironmentConfigType,
    SandboxEnvironmentLimits,
    sandboxenv,
)
from isolet import AsyncIsolet, AsyncSandbox, BadRequestError, IsoletError, NotFoundError
from isolet import ExecResult as Finished
from rich import print as show
from typing_extensions import override

from . import commands, failures
from .config import CONFIG_FILE, IsoletSandboxConfig, resolve_config

#: Directory in which commands start and relative paths begin.
WORKSPACE = PurePosixPath("/workspace")
#: Marks the sandboxes of this provider, so that ``inspect sandbox cleanup`` finds them.
_METADATA = {"created_by": "isolet-inspect"}
#: The most output per stream that the SDK collects.
_OUTPUT_BYTES_MAX = 64 * 1024 * 1024

#: Ids of sandboxes that exist, by the task that created them; ``task_cleanup`` deletes what is left.
_running: ContextVar[dict[str, str] | None] = ContextVar("isolet_running", default=None)


def _running_sandboxes() -> dict[str, str]:
    running = _running.get()
    if running is None:
        running = {}
        _running.set(running)
    return running


@sandboxenv(name="isolet")
class IsoletSandboxEnvironment(SandboxEnvironment):
    """A sandbox of an Isolet server, which ``ISOLET_URL`` and ``ISOLET_API_KEY`` name.

    Attributes:
        sandbox: the sandbox, with everything else that the SDK can do in it.
    """

    def __init__(
        self, client: AsyncIsolet, sandbox: AsyncSandbox, own: commands.OwnUser, user: str | None
    ) -> None:
        super().__init__()
        self.sandbox = sandbox
        self._client = client
        self._own = own
        #: Who runs commands that name no user; ``None`` for the sandbox's own user.
        self._user = None if user in (own.uid, own.name) else user

    @override
    @classmethod
    def config_files(cls) -> list[str]:
        return [CONFIG_FILE]

    @override
    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> IsoletSandboxConfig:
        return IsoletSandboxConfig.model_validate(config)

    @override
    @classmethod
    async def task_init(cls, task_name: str, config: SandboxEnvironmentConfigType | None) -> None:
        resolve_config(config)
        _running_sandboxes()

    @override
    @classmethod
    async def sample_init(
        cls, task_name: str, config: SandboxEnvironmentConfigType | None, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        settings = resolve_config(config)
        client = AsyncIsolet()
        try:
            sandbox = await client.create_sandbox(
                image=settings.image,
                memory_mib=settings.memory_mib,
                cpu_millis=settings.cpu_millis,
                pids=settings.pids,
                disk_mib=settings.disk_mib,
                network=settings.network,
                network_profile=settings.network_profile,
                snapshot=settings.snapshot,
                env=dict(settings.env),
                ttl=settings.ttl,
                # A model may think for longer than a sandbox stays awake, and programs must survive that.
                sleep_after=0,
                metadata={**_METADATA, "task": task_name},
            )
            _running_sandboxes()[sandbox.id] = task_name
            own = await _own_user(sandbox)
            environment = cls(client, sandbox, own, settings.user)
            await environment._own_workspace()
        except BaseException:
            await client.close()
            raise
        return {"default": environment}

    @override
    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        for environment in environments.values():
            own = environment.as_type(cls)
            with anyio.CancelScope(shield=True):
                async with own._client:
                    await _delete(own.sandbox)

    @override
    @classmethod
    async def task_cleanup(
        cls, task_name: str, config: SandboxEnvironmentConfigType | None, cleanup: bool
    ) -> None:
        left = [one for one, task in _running_sandboxes().items() if task == task_name]
        if not left:
            return
        if not cleanup:
            show("These sandboxes still exist (inspect sandbox cleanup isolet ID deletes one):")
            for one in left:
                show(f"  {one}")
            return
        async with AsyncIsolet() as client:
            for one in left:
                await _delete(client.sandbox(one))

    @override
    @classmethod
    async def cli_cleanup(cls, id: str | None) -> None:
        async with AsyncIsolet() as client:
            if id is not None:
                ids = [id]
            else:
                every = [info async for info in client.sandboxes() if info.state != "destroyed"]
                ids = [one.id for one in every if one.metadata.get("created_by") == _METADATA["created_by"]]
            for one in ids:
                await _delete(client.sandbox(one))
                show(f"deleted sandbox {one}")

    async def _own_workspace(self) -> None:
        """Give the workspace to the user of the settings."""
        if self._user is None:
            return
        argv = ["/bin/chown", "-R", "--", self._user, str(WORKSPACE)]
        owned = await self.sandbox.run_program(argv, timeout=60)
        if not owned.ok:
            raise ValueError(f"cannot give {WORKSPACE} to user {self._user!r}: {owned.stderr.strip()}")

    @override
    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        other = self._user if user is None else user
        argv = self._own.run_as(cmd, other)
        try:
            done = await self._program(argv, input, cwd=cwd, env=env, timeout=timeout)
        except NotFoundError as error:
            if error.code != "not_found":
                raise failures.exec_error(error) from error
            return ExecResult(False, 127, "", error.message)
        except BadRequestError as error:
            if error.code != "bad_cwd":
                raise
            return ExecResult(False, 126, "", error.message)
        except IsoletError as error:
            raise failures.exec_error(error) from error
        if done.timed_out:
            raise TimeoutError(f"{shlex.join(cmd)[:200]} was ended after its timeout of {timeout} s")
        if done.truncated is not None:
            limit = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR
            raise OutputLimitExceededError(limit, done.stdout)
        by_shell = argv != cmd or commands.size(argv, input) > commands.INLINE_BYTES
        if by_shell and done.exit_code == 126 and "permission denied" in done.stderr.lower():
            raise PermissionError(done.stderr.strip())
        return ExecResult(done.ok, done.exit_code, done.stdout, done.stderr)

    async def _program(
        self,
        argv: list[str],
        stdin: str | bytes | None,
        *,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout: int | None = None,
    ) -> Finished:
        async with self._staged(argv, stdin) as (command, rest):
            return await self.sandbox.run_program(
                command,
                stdin=rest,
                cwd=None if cwd is None else str(WORKSPACE / cwd),
                env=env,
                timeout=timeout or 0,
                max_output_bytes=min(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE, _OUTPUT_BYTES_MAX),
            )

    @contextlib.asynccontextmanager
    async def _staged(
        self, argv: list[str], stdin: str | bytes | None
    ) -> AsyncIterator[tuple[list[str], str | bytes | None]]:
        if commands.size(argv, stdin) <= commands.INLINE_BYTES:
            yield argv, stdin
            return
        at = f"/tmp/.isolet-inspect-{uuid.uuid4().hex}"
        stdin_at = None if stdin is None else f"{at}.input"
        if stdin is not None and stdin_at is not None:
            await self.sandbox.write_file(stdin_at, stdin, mode=0o600)
        await self.sandbox.write_file(at, commands.script(argv, at, stdin_at), mode=0o600)
        yield ["/bin/sh", at], None

    @override
    async def write_file(self, file: str, contents: str | bytes) -> None:
        if self._user is not None:
            await self._write_as_user(file, contents)
            return
        try:
            await self.sandbox.write_file(file, contents)
        except IsoletError as error:
            raise await self._file_error(error, file) from error

    async def _write_as_user(self, file: str, contents: str | bytes) -> None:
        command = ["/bin/sh", "-c", commands.WRITE_FILE, "sh", str(WORKSPACE / file)]
        try:
            done = await self._program(self._own.run_as(command, self._user), contents)
        except IsoletError as error:
            raise failures.exec_error(error) from error
        if done.exit_code == 21:
            raise IsADirectoryError(f"{file} is a directory")
        if not done.ok:
            kind = PermissionError if "permission denied" in done.stderr.lower() else OSError
            raise kind(f"{file}: {done.stderr.strip()}")

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    @override
    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        if self._user is not None:
            command = ["/bin/sh", "-c", commands.CHECK_READABLE, "sh", str(WORKSPACE / file)]
            if (await self._program(self._own.run_as(command, self._user), None)).exit_code == 13:
                raise PermissionError(f"user {self._user!r} may not read {file}")
        try:
            content = await self._content(file)
        except IsoletError as error:
            raise await self._file_error(error, file) from error
        return content.decode("utf-8") if text else content

    async def _content(self, file: str) -> bytes:
        """Read a file up to the limit of Inspect, also one whose size is not known, such as in ``/proc``."""
        limit = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
        content = bytearray()
        async with await self.sandbox.stream_file(file) as stream:
            if stream.size is None or stream.size <= limit:
                async for piece in stream:
                    content += piece
                    if len(content) > limit:
                        break
                else:
                    return bytes(content)
        raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)

    async def _file_error(self, error: IsoletError, file: str) -> Exception:
        is_directory = False
        if error.code in ("wrong_kind", "exists"):
            with contextlib.suppress(IsoletError):
                is_directory = (await self.sandbox.stat(file)).type == "directory"
        return failures.file_error(error, file, is_directory)

    @override
    async def connection(self, *, user: str | None = None) -> SandboxConnection:
        if user not in (None, "root"):
            raise NotImplementedError(f"a terminal starts as the sandbox's own user, not as {user!r}")
        command = f"ISOLET_URL={shlex.quote(self._client.url)} isolet shell {self.sandbox.id}"
        return SandboxConnection(type="isolet", command=command, container=self.sandbox.id)


async def _own_user(sandbox: AsyncSandbox) -> commands.OwnUser:
    found = await sandbox.run_program(["/bin/sh", "-c", "id -u; id -un"], timeout=60)
    uid, _, name = found.stdout.strip().partition("\n")
    return commands.OwnUser(uid, name)


async def _delete(sandbox: AsyncSandbox) -> None:
    """Delete a sandbox that may be gone already."""
    with contextlib.suppress(NotFoundError):
        await sandbox.delete(force=True)
    _running_sandboxes().pop(sandbox.id, None)
