"""A sandbox: made by its first use, with sessions, commands and files."""
# Made by tools/make_sync.py from its async twin: change that one.

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .. import calls
from ..calls import Call, sandbox_path
from ..errors import ConflictError, NotFoundError
from ..models import FileAccess, SandboxInfo, SessionInfo
from ..results import ExecResult
from ..values import AnyPath, Duration, Env, exports
from . import commands, io
from .commands import ExecStream, OnOutput
from .contexts import Contexts
from .events import Events
from .network import Network
from .ports import Ports
from .processes import Processes
from .session import Session
from .shell import Shell
from .terminals import Terminals
from .workspace import Workspace

if TYPE_CHECKING:
    from .client import Connection


class Sandbox(Workspace, Processes, Contexts, Ports, Terminals, Network):
    """A sandbox. In ``with`` it is deleted at the end, whatever happened in between.

    It falls asleep when nobody uses it, and any call that works in it wakes it: the first command's
    result then says in ``lost`` what the sleep has ended.
    """

    def __init__(
        self,
        connection: Connection,
        id: str,
        make: Call | None,
        default_session: bool,
    ) -> None:
        self._connection = connection
        self._make = make
        self._making = io.Lock()
        self._made = make is None
        self._default_session = default_session
        #: Unique among the tenant's.
        self.id = id

    def __repr__(self) -> str:
        return f"{type(self).__name__}(id={self.id!r})"

    @property
    def _path(self) -> str:
        return sandbox_path(self.id)

    def _ready(self) -> None:
        if self._made or self._make is None:
            return
        with self._making:
            if self._made:
                return
            try:
                self._connection.send(calls.anew(self._make))
            except ConflictError as error:
                if error.code != "sandbox_exists":
                    raise
            self._made = True

    def _at(self) -> str:
        self._ready()
        return self._path

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.delete()

    def exec(
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
        """Runs a command in a session, which is made where it is not there: ``default`` unless named.

        Takes what a session's :meth:`exec` takes. Of a sandbox without a default session, a command
        that names none runs by itself, as :meth:`run_program` has it.
        """
        if session is None and not self._default_session:
            return self.run_program(
                command,
                cwd=cwd,
                env=env,
                stdin=stdin,
                timeout=timeout,
                max_output_bytes=max_output_bytes,
                on_output=on_output,
            )
        return self.session(session or "default").exec(
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

    def stream(
        self,
        command: str | Sequence[str],
        *,
        session: str | None = None,
        cwd: AnyPath | None = None,
        env: Env | None = None,
        stdin: str | bytes | None = None,
        timeout: Duration | None = None,
        max_output_bytes: int | None = None,
    ) -> ExecStream:
        """Runs a command, and gives its output as it is written; in a session as :meth:`exec`, or, where
        it is a program with arguments, by itself."""
        if isinstance(command, str) and (session is not None or self._default_session):
            return self.session(session or "default").stream(
                command, cwd=cwd, env=env, stdin=stdin, timeout=timeout, max_output_bytes=max_output_bytes
            )
        self._ready()
        call = calls.exec_call(
            self._path, command, session=session, cwd=cwd, env=env, stdin=stdin, timeout=timeout, stream=True
        )
        return commands.stream(self._connection, call, command, max_output_bytes).open()

    def run_program(
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
        """Runs a program without a shell behind it that stays. It is killed whole when this is given up.

        Args:
            command: program and arguments, or one text for a ``bash -c`` of its own.
            session: begin with the directory, environment and timeout that this session was made with:
                not with its shell, which may be busy.
            cwd: where it runs; ``/workspace``, or the session's own, unless told.
            env: over the sandbox's environment; ``None`` unsets a name.
            stdin: its standard input; end of file at once unless told.
            timeout: seconds until it is killed; 0 never.
            max_output_bytes: kept of each stream; 8 MiB unless told, at most 64 MiB.
            on_output: hears each piece of output when it is written.

        Raises:
            NotFoundError: ``not_found``: there is no such program.
        """
        self._ready()
        return commands.run(
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

    def _program(self, argv: Sequence[str], env: Env, timeout: Duration) -> ExecResult:
        return self.run_program(argv, env=env, timeout=timeout)

    def shell(
        self,
        session: str | None = None,
        *,
        resume: str | None = None,
        since: tuple[int, int, int] | None = None,
        watch: bool = False,
    ) -> Shell:
        """A shell over a WebSocket, with input, signals and cancels while commands run.

        A lost connection is taken up again by itself, at the byte where it broke.

        Args:
            session: of this session, whose shell outlives the connection; without it the shell is this
                client's own, ends when it is closed, and is kept for 60 s when the connection is lost.
            resume: come back to a shell that was left: what its ``name`` said.
            since: with ``resume``: go on behind this; what its ``position`` said.
            watch: also hear what other clients of the shell run, as ``background`` output.
        """
        return Shell(self._connection, self.id, self._ready, session, resume, since, watch)

    def session(self, id: str) -> Session:
        """A session by its id; where it is not there, its first command makes it."""
        return Session(self, id)

    def create_session(
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
    ) -> Session:
        """Makes a session.

        Args:
            id: ``[A-Za-z0-9][A-Za-z0-9._-]{0,127}``; the server makes one otherwise.
            name: for people; kept in its metadata.
            env: over the sandbox's environment.
            cwd: where its shell begins; ``/workspace`` unless told.
            command_timeout: for commands that name none, in seconds; 0 (unless told) never.
            file_access: what of the workspace it sees; all of it unless told.
            metadata: the caller's own words, at most 16 KiB as JSON.
            ttl: ends by itself after so many seconds, also in the middle of a command; never unless told.

        Raises:
            ConflictError: ``session_exists``.
            BadRequestError: a path of ``file_access`` is not there, or is no path of the workspace.
        """
        self._ready()
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
        return self.session((self._connection.json(call))["id"])

    def sessions(self, *, page: int = 100) -> Iterator[SessionInfo]:
        """Its sessions, sorted by id.

        Args:
            page: how many are asked for at once, 1 to 1000.
        """
        for told in self._connection.pages(calls.page(f"{self._at()}/sessions", page)):
            yield SessionInfo.of(told)

    def delete_session(self, id: str) -> None:
        """Ends a session and its shell.

        Raises:
            NotFoundError: ``no_session``.
            ConflictError: ``default_session``.
        """
        self.session(id).delete()

    def info(self) -> SandboxInfo:
        """Its record, and what it uses. Neither makes nor wakes it.

        Raises:
            NotFoundError: ``no_sandbox``: it was not used yet, or has ended.
        """
        return SandboxInfo.of(self._connection.json(calls.call("GET", self._path, again=True)))

    def update(
        self,
        *,
        memory_mib: int | None = None,
        cpu_millis: int | None = None,
        pids: int | None = None,
        env: Env | None = None,
        metadata: Mapping[str, Any] | None = None,
        sleep_after: Duration | None = None,
        ttl: Duration | None = None,
    ) -> SandboxInfo:
        """Changes what is told, all of it or nothing.

        Args:
            memory_mib: memory, in MiB.
            cpu_millis: processor time, in thousandths of one core.
            pids: processes and threads.
            env: for shells and programs that start from now on; ``None`` removes a name.
            metadata: in place of the old.
            sleep_after: seconds without use, counted from now; 0 never.
            ttl: seconds to live, counted from now; 0 never ends by itself.
        """
        self._ready()
        call = calls.change_sandbox(
            self.id,
            memory_mib=memory_mib,
            cpu_millis=cpu_millis,
            pids=pids,
            env=env,
            metadata=metadata,
            sleep_after=sleep_after,
            ttl=ttl,
        )
        return SandboxInfo.of(self._connection.json(call))

    def set_env(self, variables: Env) -> None:
        """Sets variables for every shell and program that starts from now on, and for further commands of
        the session ``default``; ``None`` unsets."""
        command = exports(variables)
        self.update(env=variables)
        if self._default_session:
            (self.exec(command)).check()

    def sleep(self) -> SandboxInfo:
        """Puts it to sleep now. The next call that works in it wakes it; there is no other way to.

        Raises:
            ConflictError: ``sandbox_in_use``: a command runs in it, or a client is attached.
        """
        self._ready()
        return SandboxInfo.of(self._connection.json(calls.call("POST", f"{self._path}/sleep")))

    def events(self, *, after: int | None = None) -> Events:
        """What happens to it: an iterator that comes back by itself after a broken connection, goes on
        where it was, and ends with ``destroyed``. It neither makes nor wakes it.

        Args:
            after: go on behind the event of this id; 0: with all that is held.
        """
        return Events(self._connection, f"{self._path}/events", after, last="destroyed")

    def delete(self) -> None:
        """Ends it, and all that is in it. No error where it is not there. A later use makes it anew."""
        try:
            self._connection.send(calls.call("DELETE", self._path, again=True))
        except NotFoundError:
            pass
        finally:
            self._made = self._make is None
