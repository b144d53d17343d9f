"""A sandbox with its sessions, commands and files."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .. import calls
from ..calls import Call, sandbox_path
from ..errors import NotFoundError, RefusedError
from ..models import (
    FileAccess,
    RecoveredSandbox,
    RestoredSandbox,
    SandboxInfo,
    SessionInfo,
    Snapshot,
)
from ..results import ExecResult
from ..values import AnyPath, Duration, Env, export_commands
from . import commands, io
from .commands import AsyncExecStream, OnOutput
from .contexts import AsyncContexts
from .events import AsyncEvents
from .network import AsyncNetwork
from .ports import AsyncPorts
from .processes import AsyncProcesses
from .session import AsyncSession
from .shell import AsyncShell
from .terminals import AsyncTerminals
from .workspace import AsyncWorkspace

if TYPE_CHECKING:
    from .client import AsyncConnection


class AsyncSandbox(AsyncWorkspace, AsyncProcesses, AsyncContexts, AsyncPorts, AsyncTerminals, AsyncNetwork):
    """A sandbox. ``async with`` deletes it at the end, even after an error, if this object created it. A
    sandbox that existed before is kept; :meth:`delete` deletes any.

    An idle sandbox falls asleep, and any call that needs it awake wakes it. The first command's result then
    lists in ``lost`` what did not survive the sleep.
    """

    def __init__(
        self,
        connection: AsyncConnection,
        id: str,
        make: Call | None,
        default_session: bool,
    ) -> None:
        self._connection = connection
        self._create_call = make
        self._create_lock = io.Lock()
        #: A create whose response was lost. It is repeated with its idempotency key, so that the sandbox that
        #: it may have created is recognized as this object's.
        self._unanswered: Call | None = None
        self._created = make is None
        #: Whether this object created the sandbox, so that the end of a ``with`` block deletes it.
        self._owned = make is None
        self._default_session = default_session
        #: Id, unique within the tenant.
        self.id = id

    def __repr__(self) -> str:
        return f"{type(self).__name__}(id={self.id!r})"

    @property
    def _path(self) -> str:
        return sandbox_path(self.id)

    async def _ensure_created(self) -> None:
        if self._created or self._create_call is None:
            return
        async with self._create_lock:
            if self._created:
                return
            request = self._unanswered or calls.with_new_idempotency_key(self._create_call)
            self._unanswered = request
            try:
                await self._connection.send(request)
                self._owned = True
            except RefusedError as error:
                self._unanswered = None
                if error.code != "sandbox_exists":
                    raise
                self._owned = False
            self._unanswered = None
            self._created = True

    async def _ready_path(self) -> str:
        await self._ensure_created()
        return self._path

    async def __aenter__(self) -> AsyncSandbox:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._owned:
            await self.delete()

    async def exec(
        self,
        command: str,
        *,
        session: str | None = None,
        cwd: AnyPath | None = None,
        env: Env | None = None,
        stdin: str | bytes | None = None,
        timeout: Duration | None = None,
        merge: bool = False,
        max_output_bytes: int | None = None,
        keep_running: bool = False,
        on_output: OnOutput | None = None,
    ) -> ExecResult:
        """Run a command in a session's shell and wait for its end. Working directory, variables, functions
        and background jobs are kept for the next command of the session.

        The session is created if needed. In a sandbox with ``default_session=False``, a command without
        ``session`` runs as a separate process, as with :meth:`run_program`.

        Args:
            command: shell command, at most 1 MiB.
            session: session to run it in; ``default`` by default.
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
            TooManyRequestsError: ``queue_full``: 64 commands are waiting.
            UnreachableError: the response was lost; the command may have run.

        Example:
            result = await sandbox.exec("make test", timeout="5m")
            print(result.exit_code, result.stdout)
        """
        if session is None and not self._default_session:
            return await self.run_program(
                command,
                cwd=cwd,
                env=env,
                stdin=stdin,
                timeout=timeout,
                max_output_bytes=max_output_bytes,
                on_output=on_output,
            )
        return await self.session(session or "default").exec(
            command,
            cwd=cwd,
            env=env,
            stdin=stdin,
            timeout=timeout,
            merge=merge,
            max_output_bytes=max_output_bytes,
            keep_running=keep_running,
            on_output=on_output,
        )

    async def stream(
        self,
        command: str | Sequence[str],
        *,
        session: str | None = None,
        cwd: AnyPath | None = None,
        env: Env | None = None,
        stdin: str | bytes | None = None,
        timeout: Duration | None = None,
        max_output_bytes: int | None = None,
    ) -> AsyncExecStream:
        """Run a command and stream its output.

        Text runs in a session's shell, as with :meth:`exec`. A list of program and arguments runs as a
        separate process, as with :meth:`run_program`.

        Args:
            command: shell command, or list of program and arguments.
            session: session to run it in; ``default`` by default.
            cwd: working directory of this command only.
            env: environment of this command only; ``None`` unsets a variable.
            stdin: standard input; empty by default.
            timeout: seconds, or text such as ``"10m"``, until the command is ended; 0 disables it.
            max_output_bytes: limit on the output that the final result contains, per stream; 8 MiB by
                default. The stream delivers all output.

        Returns:
            the output; closing it early cancels the command.

        Example:
            async with await sandbox.stream("make") as output:
                async for piece in output:
                    print(piece.text, end="")
        """
        if isinstance(command, str) and (session is not None or self._default_session):
            return await self.session(session or "default").stream(
                command, cwd=cwd, env=env, stdin=stdin, timeout=timeout, max_output_bytes=max_output_bytes
            )
        await self._ensure_created()
        call = calls.exec_call(
            self._path, command, session=session, cwd=cwd, env=env, stdin=stdin, timeout=timeout, stream=True
        )
        return await commands.stream(self._connection, call, command, max_output_bytes).open()

    async def run_program(
        self,
        command: str | Sequence[str],
        *,
        session: str | None = None,
        cwd: AnyPath | None = None,
        env: Env | None = None,
        stdin: str | bytes | None = None,
        timeout: Duration | None = None,
        max_output_bytes: int | None = None,
        on_output: OnOutput | None = None,
    ) -> ExecResult:
        """Run a program outside of any session's shell and wait for its end. If the call is cancelled, the
        program and its children are killed.

        Args:
            command: list of program and arguments, or text for ``bash -c``.
            session: start with this session's directory, environment and timeout. The session's shell is
                not used and may be busy.
            cwd: working directory; that of the session or ``/workspace`` by default.
            env: additional environment variables; ``None`` unsets one.
            stdin: standard input; empty by default.
            timeout: seconds until the program is killed; 0 disables it.
            max_output_bytes: limit on the returned output per stream; 8 MiB by default, at most 64 MiB.
            on_output: called for each piece of output while the program runs.

        Returns:
            exit status and output.

        Raises:
            NotFoundError: ``not_found``: the program does not exist.
        """
        await self._ensure_created()
        return await commands.run(
            self._connection,
            self._path,
            command,
            on_output=on_output,
            session=session,
            in_shell=False,
            cwd=cwd,
            env=env,
            stdin=stdin,
            timeout=timeout,
            max_output_bytes=max_output_bytes,
            merge=False,
            keep_running=False,
        )

    async def _program(self, argv: Sequence[str], env: Env, timeout: Duration) -> ExecResult:
        return await self.run_program(argv, env=env, timeout=timeout)

    def shell(
        self,
        session: str | None = None,
        *,
        resume: str | None = None,
        since: tuple[int, int, int] | None = None,
        watch: bool = False,
    ) -> AsyncShell:
        """Open a shell over a WebSocket: commands with input, signals and cancellation.

        The shell reconnects after a lost connection and continues at the same byte.

        Args:
            session: attach to this session's shell, which outlives the connection. By default the client
                gets a private shell, which ends when it is closed or 60 s after its connection was lost.
            resume: ``name`` of a shell to resume.
            since: with ``resume``: the ``position`` to continue from.
            watch: receive output of other clients' commands as ``background`` output.

        Example:
            async with sandbox.shell() as shell:
                await shell.run("cd /tmp")
                print((await shell.run("pwd")).stdout)
        """
        return AsyncShell(self._connection, self.id, self._ensure_created, session, resume, since, watch)

    def session(self, id: str) -> AsyncSession:
        """Get a session by id. Its first command creates it if it does not exist.

        Args:
            id: id of the session.
        """
        return AsyncSession(self, id)

    async def create_session(
        self,
        id: str | None = None,
        *,
        name: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: AnyPath | None = None,
        command_timeout: Duration | None = None,
        file_access: FileAccess | None = None,
        metadata: Mapping[str, Any] | None = None,
        ttl: Duration | None = None,
    ) -> AsyncSession:
        """Create a session.

        Args:
            id: ``[A-Za-z0-9][A-Za-z0-9._-]{0,127}``; generated by the server by default.
            name: display name, stored in the metadata.
            env: environment variables, in addition to those of the sandbox.
            cwd: initial working directory; ``/workspace`` by default.
            command_timeout: default timeout of commands, in seconds; 0 (default) disables it.
            file_access: part of the workspace that the session may access; all by default.
            metadata: arbitrary data of the caller, at most 16 KiB as JSON.
            ttl: lifetime in seconds, after which the session ends even during a command; unlimited by
                default.

        Returns:
            the new session.

        Raises:
            ConflictError: ``session_exists``.
            BadRequestError: a path of ``file_access`` does not exist or is not in the workspace.
        """
        await self._ensure_created()
        call = calls.create_session(
            self.id,
            id,
            name=name,
            env=env,
            cwd=cwd,
            command_timeout=command_timeout,
            file_access=file_access,
            metadata=metadata,
            ttl=ttl,
        )
        return self.session((await self._connection.json(call))["id"])

    async def sessions(self, *, page: int = 100) -> AsyncIterator[SessionInfo]:
        """Iterate over the sandbox's sessions, sorted by id.

        Args:
            page: number of entries per request, 1 to 1000.
        """
        async for answer in self._connection.pages(calls.page(f"{await self._ready_path()}/sessions", page)):
            yield SessionInfo.from_json(answer)

    async def delete_session(self, id: str) -> None:
        """Delete a session and its shell.

        Args:
            id: id of the session.

        Raises:
            NotFoundError: ``no_session``.
            ConflictError: ``default_session``: the default session cannot be deleted.
        """
        await self.session(id).delete()

    async def info(self) -> SandboxInfo:
        """Read configuration, state and resource usage. Neither creates nor wakes the sandbox.

        Raises:
            NotFoundError: ``no_sandbox``: it was not used yet, or was deleted.
        """
        return SandboxInfo.from_json(
            await self._connection.json(calls.call("GET", self._path, repeatable=True))
        )

    async def update(
        self,
        *,
        memory_mib: int | None = None,
        cpu_millis: int | None = None,
        pids: int | None = None,
        env: Env | None = None,
        metadata: Mapping[str, Any] | None = None,
        sleep_after: Duration | None = None,
        ttl: Duration | None = None,
        auto_resume: bool | None = None,
        snapshot_every: Duration | None = None,
        keep: int | None = None,
        snapshot_on_destroy: bool | None = None,
    ) -> SandboxInfo:
        """Change limits, environment and metadata atomically. Arguments that are not given change nothing.

        Args:
            memory_mib: memory limit, in MiB.
            cpu_millis: CPU limit, in thousandths of a core.
            pids: limit on processes and threads.
            env: variables for shells and programs that start later; ``None`` removes one.
            metadata: replaces the current metadata.
            sleep_after: idle seconds before sleep, counted from now; 0 disables sleep.
            ttl: lifetime in seconds, counted from now; 0 means unlimited.
            auto_resume: resume the sandbox when it is paused and a call works in it.
            snapshot_every: time between snapshots that the server takes; 0 means never.
            keep: how many of them exist, 1 to 100.
            snapshot_on_destroy: take a snapshot before the sandbox is deleted.

        Returns:
            the new configuration.
        """
        await self._ensure_created()
        call = calls.change_sandbox(
            self.id,
            memory_mib=memory_mib,
            cpu_millis=cpu_millis,
            pids=pids,
            env=env,
            metadata=metadata,
            sleep_after=sleep_after,
            ttl=ttl,
            auto_resume=auto_resume,
            snapshot_every=snapshot_every,
            keep=keep,
            snapshot_on_destroy=snapshot_on_destroy,
        )
        return SandboxInfo.from_json(await self._connection.json(call))

    async def set_env(self, variables: Env) -> None:
        """Set environment variables for all shells and programs that start later, and for the session
        ``default``.

        Args:
            variables: names and values; ``None`` unsets a variable.

        Raises:
            UsageError: ``bad_name``.
        """
        command = export_commands(variables)
        await self.update(env=variables)
        if self._default_session:
            (await self.exec(command)).check()

    async def sleep(self, *, force: bool = False) -> SandboxInfo:
        """Put the sandbox to sleep now. The next call that needs it awake wakes it.

        Args:
            force: sleep although commands run or clients are attached. What runs is killed, and calls that
                wait for it raise ``ConflictError`` (``sandbox_slept``).

        Raises:
            ConflictError: ``sandbox_in_use``: a command is running or a client is attached.
        """
        await self._ensure_created()
        return SandboxInfo.from_json(await self._connection.json(calls.sleep(self._path, force)))

    async def move(self, *, node: str | None = None, region: str | None = None) -> SandboxInfo:
        """Move the sandbox to another node of the fleet, with its files and the state of its shells. Waits
        for the end of the move. Never creates a sandbox.

        Args:
            node: name of the node.
            region: a region, in which placement chooses the node, instead of ``node``.

        Raises:
            NotFoundError: ``no_sandbox``.
            ServerError: ``not_a_fleet``: the server is not part of one.
        """
        return SandboxInfo.from_json(await self._connection.json(calls.move(self._path, node, region)))

    async def pause(self) -> SandboxInfo:
        """Freeze all processes of the sandbox. They keep their memory, and timeouts do not count the pause.
        Calls that work in the sandbox fail with ``sandbox_paused``, or resume it if ``auto_resume`` is set.
        Never creates one.

        Raises:
            ConflictError: ``sandbox_sleeping``.
            ServerError: ``not_paused``: a process did not stop, and all continue.
        """
        return SandboxInfo.from_json(await self._connection.json(calls.call("POST", f"{self._path}/pause")))

    async def resume(self) -> SandboxInfo:
        """Let the processes of a paused sandbox continue. A running or sleeping sandbox stays as it is."""
        return SandboxInfo.from_json(await self._connection.json(calls.call("POST", f"{self._path}/resume")))

    async def snapshot(
        self,
        *,
        name: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        ttl: Duration | None = None,
    ) -> Snapshot:
        """Take a snapshot: the current files and state of the shells, without processes, terminals
        and credentials. A retry after a lost response does not take a second one.

        Args:
            name: can stand for the id; unique among the tenant's snapshots.
            metadata: arbitrary data of the caller, at most 16 KiB as JSON.
            ttl: lifetime in seconds or as text such as ``"1d"``; unlimited by default.

        Raises:
            ConflictError: ``snapshot_exists``: the name is taken.
        """
        await self._ensure_created()
        request = calls.create_snapshot(self._path, name, metadata, ttl)
        return Snapshot.from_json(await self._connection.json(request))

    async def restore(self, snapshot: str) -> RestoredSandbox:
        """Replace the files, sessions, shell state, image and environment by those of a snapshot. The id,
        links, network, limits and metadata stay. What runs is ended, and listed in ``lost``. If it fails,
        nothing is changed. A retry after a lost response does not restore a second time.

        Args:
            snapshot: id or name, also of a snapshot of another sandbox with the same ``disk_mib``.

        Raises:
            NotFoundError: ``no_snapshot``.
            ConflictError: ``snapshot_incompatible``.
        """
        await self._ensure_created()
        request = calls.create_call(f"{self._path}/restore", {"snapshot": snapshot})
        return RestoredSandbox.from_json(await self._connection.json(request))

    async def fork(self, count: int = 1) -> list[AsyncSandbox]:
        """Create copies of the sandbox, all or none: its files, sessions, shell state, settings and
        credentials, without processes and terminals. A retry after a lost response creates no more.

        Args:
            count: how many, 1 to 100.
        """
        await self._ensure_created()
        request = calls.create_call(f"{self._path}/fork", {"count": count})
        body = await self._connection.json(request)
        return [AsyncSandbox(self._connection, one["id"], None, True) for one in body["forks"]]

    async def recover(self) -> RecoveredSandbox:
        """Make a failed sandbox ``sleeping``, with its files and the saved state of its shells. The next call
        that needs it awake wakes it. A sandbox that has not failed stays as it is; never creates one.

        Raises:
            ConflictError: ``sandbox_failed``: the sandbox is not persistent; ``sandbox_in_use``: a call is
                reading its files.
            NotFoundError: ``no_sandbox``.
        """
        return RecoveredSandbox.from_json(
            await self._connection.json(calls.call("POST", f"{self._path}/recover"))
        )

    def events(self, *, after: int | None = None) -> AsyncEvents:
        """Subscribe to events of this sandbox. Neither creates nor wakes it.

        Args:
            after: continue after the event with this id; 0 starts with the oldest event that the server
                has; by default, only new events.

        Returns:
            an iterator that reconnects after a lost connection and ends after ``destroyed``.
        """
        return AsyncEvents(self._connection, f"{self._path}/events", after, last="destroyed")

    async def delete(self, *, force: bool = False) -> str | None:
        """Delete the sandbox and everything in it. No error if it does not exist. A later use of this object
        creates it again.

        Args:
            force: take no snapshot before, also with ``snapshot_on_destroy``.

        Returns:
            the id of the snapshot that ``snapshot_on_destroy`` took; ``None`` without one.

        Raises:
            IsoletError: the snapshot failed, and the sandbox is not deleted.
        """
        query = [("force", "true")] if force else []
        try:
            deleted = await self._connection.json(calls.call("DELETE", self._path, query, repeatable=True))
        except NotFoundError:
            self._owned = self._create_call is None
            return None
        finally:
            self._created = self._create_call is None
        self._owned = self._create_call is None
        snapshot: str | None = deleted.get("snapshot")
        return snapshot
