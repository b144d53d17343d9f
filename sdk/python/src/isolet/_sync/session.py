"""A session: a shell that stays, with its directory and environment."""
# Made by tools/make_sync.py from its async twin: change that one.

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .. import calls
from ..calls import session_path
from ..models import SessionInfo
from ..results import ExecResult
from ..values import AnyPath, Duration, Env, exports
from . import commands
from .commands import ExecStream, OnOutput
from .context import Context
from .processes import Process
from .shell import Shell
from .terminal import Terminal
from .workspace import Workspace

if TYPE_CHECKING:
    from .sandbox import Sandbox


class Session(Workspace):
    """A session of a sandbox. Where it is not there, its first command makes it.

    Its file calls see what it sees.
    """

    def __init__(self, sandbox: Sandbox, id: str) -> None:
        self._sandbox = sandbox
        self._connection = sandbox._connection
        self._ready = sandbox._ready
        #: The sandbox that it belongs to.
        self.sandbox_id = sandbox.id
        #: Unique within the sandbox.
        self.id = id

    def __repr__(self) -> str:
        return f"{type(self).__name__}(sandbox={self.sandbox_id!r}, id={self.id!r})"

    @property
    def _path(self) -> str:
        return session_path(self.sandbox_id, self.id)

    def _at(self) -> str:
        self._ready()
        return self._path

    def exec(
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
        """Runs a command in the session's shell; directory, variables and jobs stay for the next.

        Commands of a session run one after the other, at most 64 wait. A command is never sent twice.

        Args:
            command: the text, as it would be typed, at most 1 MiB.
            cwd: for this command alone.
            env: for this command alone; ``None`` unsets a name.
            stdin: its standard input; end of file at once unless told.
            timeout: seconds (or ``"10m"``) until it is interrupted, and then killed: its shell and
                that shell's jobs stay. 0 never; the session's own unless told.
            merge: standard error goes into standard output.
            max_output_bytes: kept of each stream; 8 MiB unless told, at most 64 MiB. The result's
                ``truncated`` says what was cut.
            keep_running: it goes on when this call is given up (interrupted, or its connection lost);
                otherwise it is interrupted then.
            on_output: hears each piece of output when it is written.

        Raises:
            BadRequestError: ``bad_cwd``, ``bad_field``.
            TooManyRequestsError: ``queue_full``.
            UnreachableError: the answer is lost; the command may have run.
        """
        self._ready()
        return commands.run(
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

    def stream(
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
    ) -> ExecStream:
        """Runs a command, and gives its output as it is written. Takes what :meth:`exec` takes."""
        self._ready()
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
        return commands.stream(self._connection, call, command, max_output_bytes).open()

    def _program(self, argv: Sequence[str], env: Env, timeout: Duration) -> ExecResult:
        return self._sandbox.run_program(argv, session=self.id, env=env, timeout=timeout)

    def set_env(self, variables: Env) -> None:
        """Sets variables for all further commands of this session; ``None`` unsets."""
        (self.exec(exports(variables))).check()

    def shell(
        self,
        *,
        resume: str | None = None,
        since: tuple[int, int, int] | None = None,
        watch: bool = False,
    ) -> Shell:
        """The session's shell over a WebSocket, with input, signals and cancels while commands run.

        It takes what the sandbox's :meth:`shell` takes.
        """
        return Shell(self._connection, self.sandbox_id, self._ready, self.id, resume, since, watch)

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
    ) -> Terminal:
        """The session's terminal: takes what the sandbox's :meth:`terminal` takes."""
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

    def start_process(
        self,
        command: str | Sequence[str],
        *,
        id: str | None = None,
        cwd: AnyPath | None = None,
        env: Env | None = None,
        stdin: bool = False,
        timeout: Duration | None = None,
    ) -> Process:
        """Starts a process with the directory and environment that this session was made with: takes what
        the sandbox's :meth:`start_process` takes."""
        return self._sandbox.start_process(
            command, id=id, session=self.id, cwd=cwd, env=env, stdin=stdin, timeout=timeout
        )

    def create_context(
        self,
        id: str | None = None,
        *,
        language: str | None = None,
        kernel: str | None = None,
        cwd: AnyPath | None = None,
        env: Env | None = None,
        timeout: Duration | None = None,
    ) -> Context:
        """Makes a code context with this session's directory, environment and files, which ends with it:
        takes what the sandbox's :meth:`create_context` takes."""
        return self._sandbox.create_context(
            id, language=language, kernel=kernel, session=self.id, cwd=cwd, env=env, timeout=timeout
        )

    def info(self) -> SessionInfo:
        """Its record.

        Raises:
            NotFoundError: ``no_session``: no command has run in it yet, or it has ended.
        """
        self._ready()
        return SessionInfo.of(self._connection.json(calls.call("GET", self._path, again=True)))

    def delete(self) -> None:
        """Ends it and its shell. The session ``default`` ends with its sandbox alone.

        Raises:
            NotFoundError: ``no_session``.
            ConflictError: ``default_session``.
        """
        self._connection.send(calls.call("DELETE", self._path))
