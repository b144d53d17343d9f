"""A shell over a WebSocket: commands in one bash, with input, signals and cancels while they run."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING

from .. import calls, config, transport
from ..errors import IsoletError, RefusedError, ShellClosedError, UnreachableError, UsageError
from ..frames import WHOLE_INPUT_BYTES, Run, ShellState, input_frames, message, run_frame
from ..results import OUTPUT_BYTES, ExecResult, Output
from ..transport import CutError
from ..values import AnyPath, Duration, Env, milliseconds, path_bytes
from . import io

if TYPE_CHECKING:
    from .client import AsyncConnection

#: Tries to come back after a lost connection: about a minute of them, as long as a shell is kept.
_TRIES = 16


class AsyncCommand:
    """A command of a shell. Iterate over it to have its output as it is written."""

    def __init__(self, shell: AsyncShell, run: Run) -> None:
        self._shell = shell
        self._run = run
        #: Names it in its shell.
        self.id = run.id

    def __aiter__(self) -> AsyncCommand:
        return self

    async def __anext__(self) -> Output:
        while True:
            piece = self._run.unread.next()
            if piece is not None:
                return piece
            if self._run.error is not None:
                raise self._run.error
            if self._run.result is not None:
                raise StopAsyncIteration
            await self._shell._hear(self._run)

    async def result(self) -> ExecResult:
        """How it ended, and what it said; waits for its end.

        Raises:
            ShellClosedError: the shell ended, or its sandbox, before the command's end was heard.
            UnreachableError: the connection was lost for good; the command may still run.
            RefusedError: it was not run: ``queue_full``, ``bad_field``.
        """
        while not self._run.over:
            await self._shell._hear(self._run, past_output=True)
        if self._run.result is None:
            raise self._run.error or UnreachableError("the command was lost", code="cut")
        return self._run.result

    async def write(self, data: str | bytes) -> None:
        """Gives it standard input; it must have been started with ``stdin=True``.

        At most 256 KiB wait for it: beyond that this waits until it reads, so read its output meanwhile,
        in another task or thread. When the connection is lost in between, the command is cancelled: how
        much of its input has arrived cannot be known.
        """
        await self._feed(data.encode() if isinstance(data, str) else data, eof=False)

    async def close_stdin(self) -> None:
        """The end of its standard input."""
        await self._feed(b"", eof=True)

    async def _feed(self, data: bytes, eof: bool) -> None:
        for frame in input_frames(self.id, data, eof):
            if self._run.over:
                return
            self._run.fed = True
            await self._shell._say(frame, self._run)

    async def cancel(self) -> None:
        """Ends it: taken out while it waits, else interrupted, then killed. The shell stays."""
        await self._urge(message("shell_cancel", id=self.id))

    async def signal(self, signal: int | str) -> None:
        """Sends a signal to what runs in its foreground, such as ``"INT"`` or 15."""
        await self._urge(message("shell_signal", id=self.id, signal=signal))

    async def _urge(self, frame: str) -> None:
        if not self._run.over:
            self._run.urged += 1
            await self._shell._say(frame, self._run)


class AsyncShell:
    """A bash that stays. Use it in ``async with``; it connects with its first use.

    When the connection breaks it comes back by itself, at the byte where it broke: no output is missing
    or comes twice, and no command runs twice. What the server no longer held is told: ``missed`` of the
    next piece of output, and ``truncated`` of the result.

    Several tasks may use one shell; its commands run one after the other, at most 64 wait.
    """

    def __init__(
        self,
        connection: AsyncConnection,
        sandbox: str,
        ready: Callable[[], Awaitable[None]],
        session: str | None,
        resume: str | None,
        since: tuple[int, int, int] | None,
        watch: bool,
    ) -> None:
        self._connection = connection
        self._sandbox = sandbox
        self._sandbox_ready = ready
        self._watch = watch
        self._resume = resume
        self._since = since
        self._state = ShellState(session)
        self._socket: io.Socket | None = None
        self._left = False
        # One reads what comes, for all; one connects.
        self._reading = io.Lock()
        self._connecting = io.Lock()
        # Commands go out in the order in which they were started.
        self._starting = io.Lock()

    @property
    def name(self) -> str | None:
        """What names it for ``resume``, also in another process; ``None`` before it is connected."""
        return self._state.name

    @property
    def position(self) -> tuple[int, int, int]:
        """How far it was read: bytes of standard output and error, and the last exit."""
        return self._state.position

    async def open(self) -> AsyncShell:
        """Connects, where it is not connected.

        Raises:
            NotFoundError: ``no_shell``: what was to be resumed has ended.
        """
        await self._connected()
        return self

    async def run(
        self,
        command: str,
        *,
        cwd: AnyPath | None = None,
        env: Env | None = None,
        stdin: str | bytes | None = None,
        timeout: Duration | None = None,
        merge: bool = False,
        max_output_bytes: int = OUTPUT_BYTES,
    ) -> ExecResult:
        """Runs a command to its end.

        Args:
            command: the text, as it would be typed, at most 1 MiB.
            cwd: for this command alone.
            env: for this command alone; ``None`` unsets a name.
            stdin: its standard input; end of file at once unless told.
            timeout: seconds (or ``"10m"``) until it is interrupted, and then killed; the shell stays.
            merge: standard error goes into standard output.
            max_output_bytes: kept of each stream; ``truncated`` of the result says what was cut.

        Raises:
            ShellClosedError: the shell ended before the command's end was heard.
            UnreachableError: the connection was lost for good; the command may still run.
            RefusedError: it was not run: ``queue_full``, ``bad_field``.
        """
        data = stdin.encode() if isinstance(stdin, str) else stdin
        whole = isinstance(stdin, str) and len(stdin) <= WHOLE_INPUT_BYTES // 4
        follows = stdin if isinstance(stdin, str) and whole else stdin is not None
        started = await self._start(command, cwd, env, timeout, merge, follows, max_output_bytes)
        if data is None or whole:
            return await started.result()
        # Beside: a command that writes before it has read everything is heard meanwhile.
        feeding = io.Task(self._feed, started, data)
        try:
            return await started.result()
        finally:
            await feeding.join()

    async def _feed(self, command: AsyncCommand, data: bytes) -> None:
        await command._feed(data, eof=True)

    async def start(
        self,
        command: str,
        *,
        cwd: AnyPath | None = None,
        env: Env | None = None,
        stdin: bool = False,
        timeout: Duration | None = None,
        merge: bool = False,
        max_output_bytes: int = OUTPUT_BYTES,
    ) -> AsyncCommand:
        """Starts a command, and gives it to be listened to, written to, signalled or cancelled.

        Takes what :meth:`run` takes, but:

        Args:
            stdin: input will follow, by the command's ``write`` and ``close_stdin``.
        """
        return await self._start(command, cwd, env, timeout, merge, stdin, max_output_bytes)

    async def _start(
        self,
        command: str,
        cwd: AnyPath | None,
        env: Env | None,
        timeout: Duration | None,
        merge: bool,
        stdin: str | bool,
        most: int,
    ) -> AsyncCommand:
        if "\0" in command:
            raise UsageError("a command cannot hold a NUL byte", code="bad_command")
        frame = run_frame(
            f"c-{uuid.uuid4().hex[:20]}",
            command,
            cwd=None if cwd is None else path_bytes(cwd).decode(errors="replace"),
            env=env,
            timeout_ms=None if timeout is None else milliseconds(timeout),
            stdin=stdin,
            merge=merge,
        )
        run = Run(frame["id"], frame, most)
        await self._connected()
        async with self._starting:
            socket = self._socket
            for text in self._state.start(run):
                await self._send(socket, text)
        return AsyncCommand(self, run)

    def command(self, id: str) -> AsyncCommand:
        """A command that was started before this shell was resumed, by its id."""
        run = Run(id, {})
        self._state.known(run)
        return AsyncCommand(self, run)

    def background(self) -> list[Output]:
        """What background jobs have written, as far as it was heard while commands were waited for:
        the last 1 MiB. Each piece is given once."""
        pieces = []
        while (piece := self._state.background.next()) is not None:
            pieces.append(piece)
        return pieces

    async def leave(self) -> tuple[str, tuple[int, int, int]]:
        """Lets go of it as if the connection broke: what runs goes on. Gives its ``name`` and ``position``,
        to come back with ``resume`` and ``since``; a private shell is kept for 60 s."""
        await self._connected()
        self._left = True
        if self._socket is not None:
            self._socket.abort()
        return self._state.name or "", self._state.position

    async def close(self) -> None:
        """Closes the connection. A private shell ends; a session's stays."""
        self._left = True
        socket, self._socket = self._socket, None
        self._state.close(ShellClosedError("the shell was closed here", code="shell_closed"))
        if socket is not None:
            await socket.close()

    async def __aenter__(self) -> AsyncShell:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _hear(self, run: Run, past_output: bool = False) -> None:
        """Takes in the next message, whosever it is, unless ``run`` has meanwhile what it waits for."""
        async with self._reading:
            if run.over or not (past_output or run.unread.empty):
                return
            socket = await self._connected()
            try:
                text = await socket.receive()
            except CutError as cut:
                await self._lost(socket, cut)
                return
            self._state.take(text)
            while frames := self._state.rest():
                for frame in frames:
                    await self._send(socket, frame)

    async def _say(self, frame: str, run: Run) -> None:
        """Sends a frame about a command."""
        socket = await self._connected()
        if not run.over:
            await self._send(socket, frame)

    async def _send(self, socket: io.Socket | None, frame: str) -> None:
        try:
            if socket is not None:
                await socket.send(frame)
        except CutError as cut:
            await self._lost(socket, cut)

    async def _connected(self) -> io.Socket:
        if self._state.closed:
            raise self._state.closed
        if self._left:
            raise ShellClosedError("the shell was left here", code="shell_closed", hint="resume it")
        if self._socket is not None:
            return self._socket
        async with self._connecting:
            if self._socket is None:
                await self._sandbox_ready()
                await self._connect(self._resume, self._since)
            if self._socket is None:
                raise UnreachableError("the shell's connection was lost", code="cut")
            return self._socket

    async def _connect(self, resume: str | None, since: tuple[int, int, int] | None) -> None:
        state = self._state
        call = calls.shell(self._sandbox, state.session, resume, since, self._watch)
        socket = await self._connection.socket(call)
        at = [int(number) for number in socket.headers.get("isolet-at", "0,0,0").split(",")]
        state.begin(socket.headers.get("isolet-shell"), since or (at[0], at[1], at[2]))
        self._socket = socket

    async def _lost(self, socket: io.Socket | None, cut: CutError) -> None:
        """Comes back after a broken connection, or fails every command."""
        async with self._connecting:
            if self._socket is not socket or self._state.closed or self._left:
                return
            error = transport.hopeless(cut)
            if error is None:
                error = await self._return()
            if error is not None:
                self._socket = None
                closed = error if isinstance(error, ShellClosedError) else None
                self._state.close(
                    closed or ShellClosedError(error.message, code=error.code, hint=error.hint), error
                )

    async def _return(self) -> IsoletError | None:
        for attempt in range(_TRIES):
            try:
                await self._connect(self._state.name, self._state.position)
                socket = self._socket
                for frame in self._state.returned():
                    if socket is not None:
                        await socket.send(frame)
                return None
            except (UnreachableError, CutError) as error:
                last: Exception = error
            except RefusedError as error:
                if error.status < 500 and error.status != 429:
                    return error
                last = error
            await io.sleep(config.wait_before(attempt))
        return UnreachableError(f"the shell's connection was lost: {last}", code="cut")
