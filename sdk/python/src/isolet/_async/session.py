"""A session: a persistent shell with its directory and environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .. import calls
from ..calls import session_path
from ..models import SessionInfo
from ..results import ExecResult
from ..values import AnyPath, Duration, Env, export_commands
from . import commands
from .commands import AsyncExecStream, OnOutput
from .context import AsyncContext
from .processes import AsyncProcess
from .shell import AsyncShell
from .terminal import AsyncTerminal
from .workspace import AsyncWorkspace

if TYPE_CHECKING:
    from .sandbox import AsyncSandbox


class AsyncSession(AsyncWorkspace):
    """A session of a sandbox. Its first command creates it if it does not exist.

    File methods see only what the session's ``file_access`` allows.
    """

    def __init__(self, sandbox: AsyncSandbox, id: str) -> None:
        self._sandbox = sandbox
        self._connection = sandbox._connection
        self._ensure_created = sandbox._ensure_created
        #: Id of its sandbox.
        self.sandbox_id = sandbox.id
        #: Id, unique within the sandbox.
        self.id = id

    def __repr__(self) -> str:
        return f"{type(self).__name__}(sandbox={self.sandbox_id!r}, id={self.id!r})"

    @property
    def _path(self) -> str:
        return session_path(self.sandbox_id, self.id)

    async def _ready_path(self) -> str:
        await self._ensure_created()
        return self._path

    async def exec(
        self,
        command: str,
        *,
        cwd: AnyPath | None = None,
        env: Env | None = None,
        stdin: str | bytes | None = None,
        timeout: Duration | None = None,
        merge: bool = False,
        max_output_bytes: int | None = None,
        keep_running: bool = False,
        on_output: OnOutput | None = None,
    ) -> ExecResult:
        """Run a command in the session's shell and wait for its end. Working directory, variables and
        background jobs persist for the next command.

        Commands of a session run one after the other; at most 64 wait. A command is never sent twice.

        Args:
            command: shell command, at most 1 MiB.
            cwd: working directory of this command only.
            env: environment of this command only; ``None`` unsets a variable.
            stdin: standard input; empty by default.
            timeout: seconds, or text such as ``"10m"``, until the command is interrupted and then killed;
                its shell and background jobs stay. 0 disables it; the session's timeout by default.
            merge: redirect standard error to standard output.
            max_output_bytes: limit on the returned output per stream; 8 MiB by default, at most 64 MiB.
                ``truncated`` of the result counts the rest.
            keep_running: let the command continue when this call ends early (cancelled, or its connection
                lost); by default it is interrupted then.
            on_output: called for each piece of output while the command runs.

        Returns:
            exit status and output. A nonzero exit code does not raise; see :meth:`ExecResult.check`.

        Raises:
            BadRequestError: ``bad_cwd`` or ``bad_field``.
            TooManyRequestsError: ``queue_full``.
            UnreachableError: the response was lost; the command may have run.

        Example:
            await session.exec("cd /tmp; export GREETING=hello")
            print((await session.exec("pwd; echo $GREETING")).stdout)
        """
        await self._ensure_created()
        return await commands.run(
            self._connection,
            self._path,
            command,
            on_output=on_output,
            session=None,
            in_shell=True,
            cwd=cwd,
            env=env,
            stdin=stdin,
            timeout=timeout,
            max_output_bytes=max_output_bytes,
            merge=merge,
            keep_running=keep_running,
        )

    async def stream(
        self,
        command: str,
        *,
        cwd: AnyPath | None = None,
        env: Env | None = None,
        stdin: str | bytes | None = None,
        timeout: Duration | None = None,
        merge: bool = False,
        max_output_bytes: int | None = None,
        keep_running: bool = False,
    ) -> AsyncExecStream:
        """Run a command and stream its output. Takes the arguments of :meth:`exec`, except ``on_output``.

        Returns:
            the output; closing it early cancels the command.
        """
        await self._ensure_created()
        call = calls.exec_call(
            self._path,
            command,
            cwd=cwd,
            env=env,
            stdin=stdin,
            timeout=timeout,
            merge=merge,
            keep_running=keep_running,
            in_shell=True,
            stream=True,
        )
        return await commands.stream(self._connection, call, command, max_output_bytes).open()

    async def _program(self, argv: Sequence[str], env: Env, timeout: Duration) -> ExecResult:
        return await self._sandbox.run_program(argv, session=self.id, env=env, timeout=timeout)

    async def set_env(self, variables: Env) -> None:
        """Set variables for all later commands of the session.

        Args:
            variables: names and values; ``None`` unsets a variable.

        Raises:
            UsageError: ``bad_name``.
        """
        (await self.exec(export_commands(variables))).check()

    def shell(
        self,
        *,
        resume: str | None = None,
        since: tuple[int, int, int] | None = None,
        watch: bool = False,
    ) -> AsyncShell:
        """Open the session's shell over a WebSocket. Takes the arguments of :meth:`AsyncSandbox.shell`."""
        return AsyncShell(
            self._connection, self.sandbox_id, self._ensure_created, self.id, resume, since, watch
        )

    def terminal(
        self,
        *,
        cols: int = 80,
        rows: int = 24,
        command: Sequence[str] = (),
        mode: str = "edit",
        name: str | None = None,
        record: bool = False,
        resume: str | None = None,
        since: int | None = None,
    ) -> AsyncTerminal:
        """Attach to the session's terminal. Takes the arguments of :meth:`AsyncSandbox.terminal`."""
        return self._sandbox.terminal(
            self.id,
            cols=cols,
            rows=rows,
            command=command,
            mode=mode,
            name=name,
            record=record,
            resume=resume,
            since=since,
        )

    async def start_process(
        self,
        command: str | Sequence[str],
        *,
        id: str | None = None,
        cwd: AnyPath | None = None,
        env: Env | None = None,
        stdin: bool = False,
        timeout: Duration | None = None,
    ) -> AsyncProcess:
        """Start a background process with the session's directory and environment. Takes the arguments of
        :meth:`AsyncSandbox.start_process`.
        """
        return await self._sandbox.start_process(
            command, id=id, session=self.id, cwd=cwd, env=env, stdin=stdin, timeout=timeout
        )

    async def create_context(
        self,
        id: str | None = None,
        *,
        language: str | None = None,
        kernel: str | None = None,
        cwd: AnyPath | None = None,
        env: Env | None = None,
        timeout: Duration | None = None,
    ) -> AsyncContext:
        """Create a code context with the session's directory, environment and file access. It ends with the
        session. Takes the arguments of :meth:`AsyncSandbox.create_context`.
        """
        return await self._sandbox.create_context(
            id, language=language, kernel=kernel, session=self.id, cwd=cwd, env=env, timeout=timeout
        )

    async def info(self) -> SessionInfo:
        """Read configuration and state.

        Raises:
            NotFoundError: ``no_session``: no command has run in it yet, or it has ended.
        """
        await self._ensure_created()
        return SessionInfo.from_json(
            await self._connection.json(calls.call("GET", self._path, repeatable=True))
        )

    async def update(
        self,
        *,
        env: Env | None = None,
        command_timeout: Duration | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> SessionInfo:
        """Change the session. Arguments that are left out keep their value.

        Args:
            env: variables to set; ``None`` removes one. Programs, processes, terminals and shells that start
                later have them. An open shell keeps its variables; see :meth:`set_env`.
            command_timeout: timeout of commands that name none, in seconds; 0 disables it.
            metadata: replaces the metadata; at most 16 KiB as JSON.

        Returns:
            the session after the change.

        Raises:
            NotFoundError: ``no_session``.

        Example:
            await session.update(env={"MODE": "release", "DEBUG": None})
        """
        await self._ensure_created()
        call = calls.update_session(self._path, env, command_timeout, metadata)
        return SessionInfo.from_json(await self._connection.json(call))

    async def delete(self) -> None:
        """Delete the session and its shell. The session ``default`` ends only with its sandbox.

        Raises:
            NotFoundError: ``no_session``.
            ConflictError: ``default_session``.
        """
        await self._connection.send(calls.call("DELETE", self._path))
