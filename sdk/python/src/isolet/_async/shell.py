"""A shell over a WebSocket: commands with input, signals and cancellation."""

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

#: Reconnect attempts; about a minute, as long as the server preserves a private shell.
_RECONNECT_ATTEMPTS = 16


class AsyncCommand:
    """A command of a shell. Iterate over it to read its output."""

    def __init__(self, shell: AsyncShell, run: Run) -> None:
        self._shell = shell
        self._run = run
        #: Id, unique within the shell.
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
            await self._shell._receive(self._run)

    async def result(self) -> ExecResult:
        """Wait for the end of the command.

        Returns:
            exit status and output.

        Raises:
            ShellClosedError: the shell or its sandbox ended first.
            UnreachableError: the connection was lost for good; the command may still run.
            RefusedError: the command was not run: ``queue_full`` or ``bad_field``.
        """
        while not self._run.finished:
            await self._shell._receive(self._run, past_output=True)
        if self._run.result is None:
            raise self._run.error or UnreachableError("the command's result was lost", code="cut")
        return self._run.result

    async def write(self, data: str | bytes) -> None:
        """Write to standard input. The command must have been started with ``stdin=True``.

        If the command does not read, the call blocks after 256 KiB; so read its output at the same time, in
        another task or thread. If the connection breaks during the write, the command is cancelled, since
        it is unknown how much input arrived.

        Args:
            data: input; text is encoded as UTF-8.

        Raises:
            ShellClosedError: the shell has ended.
        """
        await self._send_input(data.encode() if isinstance(data, str) else data, eof=False)

    async def close_stdin(self) -> None:
        """Close standard input."""
        await self._send_input(b"", eof=True)

    async def _send_input(self, data: bytes, eof: bool) -> None:
        for frame in input_frames(self.id, data, eof):
            if self._run.finished:
                return
            self._run.input_sent = True
            await self._shell._send_frame(frame, self._run)

    async def cancel(self) -> None:
        """Cancel the command: remove it from the queue, or interrupt and then kill it. The shell stays."""
        await self._send_control(message("shell_cancel", id=self.id))

    async def signal(self, signal: int | str) -> None:
        """Send a signal to the command's foreground processes.

        Args:
            signal: name such as ``"INT"``, or number.
        """
        await self._send_control(message("shell_signal", id=self.id, signal=signal))

    async def _send_control(self, frame: str) -> None:
        if not self._run.finished:
            self._run.control_frames_sent += 1
            await self._shell._send_frame(frame, self._run)


class AsyncShell:
    """A persistent bash over a WebSocket. Use it in ``async with``; its first use connects.

    After a lost connection the shell reconnects and continues at the same byte: no output is lost or
    repeated, and no command runs twice. Output that the server no longer has is counted in ``missed`` of
    the next piece of output and in ``truncated`` of the result.

    Several tasks may use one shell. Its commands run one after the other; at most 64 wait.
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
        self._ensure_created = ready
        self._watch = watch
        self._resume = resume
        self._since = since
        self._state = ShellState(session)
        self._socket: io.Socket | None = None
        self._detached = False
        # Only one caller reads or connects at a time.
        self._reading = io.Lock()
        self._connecting = io.Lock()
        # Commands are sent in the order in which they were started.
        self._starting = io.Lock()

    @property
    def name(self) -> str | None:
        """Name for ``resume``, also in another process; ``None`` before the first connection."""
        return self._state.name

    @property
    def position(self) -> tuple[int, int, int]:
        """Position for ``since``: bytes read of standard output and error, and the number of the latest
        exit.
        """
        return self._state.position

    async def open(self) -> AsyncShell:
        """Connect if not connected.

        Raises:
            NotFoundError: ``no_shell``: the shell to resume has ended.
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
        """Run a command and wait for its end.

        Args:
            command: shell command, at most 1 MiB.
            cwd: working directory of this command only.
            env: environment of this command only; ``None`` unsets a variable.
            stdin: standard input; empty by default.
            timeout: seconds, or text such as ``"10m"``, until the command is interrupted and then killed;
                the shell stays.
            merge: redirect standard error to standard output.
            max_output_bytes: limit on the returned output per stream; ``truncated`` of the result counts
                the rest.

        Returns:
            exit status and output. A nonzero exit code does not raise.

        Raises:
            ShellClosedError: the shell ended first.
            UnreachableError: the connection was lost for good; the command may still run.
            RefusedError: the command was not run: ``queue_full`` or ``bad_field``.
        """
        data = stdin.encode() if isinstance(stdin, str) else stdin
        send_inline = isinstance(stdin, str) and len(stdin) <= WHOLE_INPUT_BYTES // 4
        stdin_field = stdin if isinstance(stdin, str) and send_inline else stdin is not None
        started = await self._start(command, cwd, env, timeout, merge, stdin_field, max_output_bytes)
        if data is None or send_inline:
            return await started.result()
        # Concurrently: the command may produce output before it has read all its input.
        feeding = io.Task(self._send_input, started, data)
        try:
            return await started.result()
        finally:
            await feeding.join()

    async def _send_input(self, command: AsyncCommand, data: bytes) -> None:
        await command._send_input(data, eof=True)

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
        """Start a command without waiting for its end.

        Takes the arguments of :meth:`run`, except:

        Args:
            stdin: leave standard input open for :meth:`AsyncCommand.write` and ``close_stdin``.

        Returns:
            the command, to read its output, write to it, send signals or cancel it.
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
        limit_bytes: int,
    ) -> AsyncCommand:
        if "\0" in command:
            raise UsageError("a command cannot contain a NUL byte", code="bad_command")
        frame = run_frame(
            f"c-{uuid.uuid4().hex[:20]}",
            command,
            cwd=None if cwd is None else path_bytes(cwd).decode(errors="replace"),
            env=env,
            timeout_ms=None if timeout is None else milliseconds(timeout),
            stdin=stdin,
            merge=merge,
        )
        run = Run(frame["id"], frame, limit_bytes)
        await self._connected()
        async with self._starting:
            socket = self._socket
            for text in self._state.start(run):
                await self._send(socket, text)
        return AsyncCommand(self, run)

    def command(self, id: str) -> AsyncCommand:
        """Get a command by id that was started before this shell was resumed.

        Args:
            id: :attr:`AsyncCommand.id` of the command.
        """
        run = Run(id, {})
        self._state.adopt(run)
        return AsyncCommand(self, run)

    def background(self) -> list[Output]:
        """Take the output of background jobs that was received while waiting for commands.

        Returns:
            at most the last 1 MiB; each piece is returned once.
        """
        pieces = []
        while (piece := self._state.background.next()) is not None:
            pieces.append(piece)
        return pieces

    async def leave(self) -> tuple[str, tuple[int, int, int]]:
        """Disconnect without ending the shell or its commands.

        Returns:
            ``name`` and ``position``, for ``resume`` and ``since``. The server preserves a private shell
            for 60 s.
        """
        await self._connected()
        self._detached = True
        if self._socket is not None:
            self._socket.abort()
        return self._state.name or "", self._state.position

    async def close(self) -> None:
        """Close the connection. A private shell ends; a session's shell stays."""
        self._detached = True
        socket, self._socket = self._socket, None
        self._state.close(ShellClosedError("the shell was closed by this client", code="shell_closed"))
        if socket is not None:
            await socket.close()

    async def __aenter__(self) -> AsyncShell:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _receive(self, run: Run, past_output: bool = False) -> None:
        """Process the next message, unless ``run`` already has what it waits for."""
        async with self._reading:
            if run.finished or not (past_output or run.unread.empty):
                return
            socket = await self._connected()
            try:
                text = await socket.receive()
            except CutError as cut:
                await self._lost(socket, cut)
                return
            self._state.take(text)
            while frames := self._state.deferred_frames():
                for frame in frames:
                    await self._send(socket, frame)

    async def _send_frame(self, frame: str, run: Run) -> None:
        """Send a frame about a command."""
        socket = await self._connected()
        if not run.finished:
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
        if self._detached:
            raise ShellClosedError(
                "the shell was left by this client", code="shell_closed", hint="resume it by name"
            )
        if self._socket is not None:
            return self._socket
        async with self._connecting:
            if self._socket is None:
                await self._ensure_created()
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
        """Reconnect after a lost connection, or fail all commands."""
        async with self._connecting:
            if self._socket is not socket or self._state.closed or self._detached:
                return
            error = transport.shell_closed_error(cut)
            if error is None:
                error = await self._reconnect()
            if error is not None:
                self._socket = None
                closed = error if isinstance(error, ShellClosedError) else None
                self._state.close(
                    closed or ShellClosedError(error.message, code=error.code, hint=error.hint), error
                )

    async def _reconnect(self) -> IsoletError | None:
        for attempt in range(_RECONNECT_ATTEMPTS):
            try:
                await self._connect(self._state.name, self._state.position)
                socket = self._socket
                for frame in self._state.resume_frames():
                    if socket is not None:
                        await socket.send(frame)
                return None
            except (UnreachableError, CutError) as error:
                last: Exception = error
            except RefusedError as error:
                if error.status < 500 and error.status != 429:
                    return error
                last = error
            await io.sleep(config.retry_delay_s(attempt))
        return UnreachableError(f"the shell's connection was lost: {last}", code="cut")
