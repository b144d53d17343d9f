"""Terminals, recordings and tickets of a sandbox."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from .. import terminal_calls
from ..errors import NotFoundError, UsageError
from ..terminal import Recording, TerminalInfo, Ticket
from ..terminal_calls import Attach
from ..values import Duration
from .files import AsyncFileStream
from .terminal import AsyncTerminal

if TYPE_CHECKING:
    from .client import AsyncConnection


class AsyncTerminals:
    """Methods of a sandbox for terminals."""

    _connection: AsyncConnection
    id: str

    async def _ensure_created(self) -> None:
        raise NotImplementedError

    async def _ready_path(self) -> str:
        raise NotImplementedError

    def terminal(
        self,
        session: str = "default",
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
        r"""Get the terminal of a session. If none is running, attaching opens one. It keeps running without
        clients.

        Args:
            session: session of the terminal; created if needed.
            cols: width of the client's window, at most 1000.
            rows: height of the client's window, at most 400.
            command: program and arguments to run instead of bash, if this opens the terminal.
            mode: ``edit``, or ``view`` to watch without input.
            name: name of this client that other clients see, at most 64 bytes.
            record: start a recording.
            resume: ``id`` of a terminal to resume; it is not opened again if it has ended.
            since: with ``resume``: the output offset to continue from; by default, the server sends a
                snapshot of the screen.

        Example:
            async with sandbox.terminal(cols=120, rows=30) as terminal:
                await terminal.write("stty size\n")
                await terminal.wait_for("30 120")
        """
        if isinstance(command, str):
            raise UsageError(
                "a terminal's command must be a list of program and arguments", code="bad_command"
            )
        if mode not in ("edit", "view"):
            raise UsageError(f"the mode must be edit or view, not {mode!r}", code="bad_mode")
        options = Attach(session, command, mode, name, record, open=True)
        at = None if resume is None else (resume, since)
        return AsyncTerminal(self._connection, self.id, self._ensure_created, options, (cols, rows), at)

    async def terminals(self) -> list[TerminalInfo]:
        """List running terminals. The list is empty while the sandbox sleeps."""
        answer = await self._connection.json(terminal_calls.terminals(await self._ready_path()))
        return [TerminalInfo.from_json(one) for one in answer]

    async def close_terminal(self, session: str = "default") -> None:
        """Close a session's terminal and kill its program. No error if none is running.

        Args:
            session: session of the terminal.
        """
        with suppress(NotFoundError):
            await self._connection.send(terminal_calls.close(await self._ready_path(), session))

    async def create_ticket(
        self,
        use: str = "terminal",
        *,
        session: str | None = None,
        mode: str | None = None,
        port: int | None = None,
        ttl: Duration | None = None,
    ) -> Ticket:
        """Create a ticket that opens one WebSocket of this sandbox once. Tickets are for web pages, which
        must
        not know the key.

        Args:
            use: ``terminal``, ``shell`` or ``port``.
            session: ``default`` by default; for a shell, a private one by default.
            mode: ``view`` allows only to watch a running terminal.
            port: port number, for ``port``.
            ttl: lifetime in seconds; 30 by default, at most 300.

        Raises:
            TooManyRequestsError: the tenant has 1000 unused tickets.
        """
        await self._ensure_created()
        call = terminal_calls.ticket(self.id, use=use, session=session, mode=mode, port=port, ttl=ttl)
        return Ticket.from_json(await self._connection.json(call))

    async def recordings(self) -> list[Recording]:
        """List terminal recordings, at most 100."""
        answer = await self._connection.json(terminal_calls.recordings(await self._ready_path()))
        return [Recording.from_json(one) for one in answer]

    async def start_recording(self, session: str = "default") -> None:
        """Record a running terminal until it ends or the recording reaches 64 MiB. No error if it is already
        being recorded.

        Args:
            session: session of the terminal.

        Raises:
            NotFoundError: ``no_terminal``: no terminal is running.
        """
        await self._connection.send(terminal_calls.record(await self._ready_path(), session, "POST"))

    async def stop_recording(self, session: str = "default") -> None:
        """Stop recording; the recording is preserved. No error if none is active.

        Args:
            session: session of the terminal.
        """
        with suppress(NotFoundError):
            await self._connection.send(terminal_calls.record(await self._ready_path(), session, "DELETE"))

    async def read_recording(self, id: str) -> AsyncFileStream:
        """Stream a recording in asciicast version 2, also while it is being recorded.

        Args:
            id: id of the recording.

        Raises:
            NotFoundError: the recording does not exist.
        """
        response = await self._connection.open(terminal_calls.recording(await self._ready_path(), id))
        return AsyncFileStream(self._connection.url, response)

    async def delete_recording(self, id: str) -> None:
        """Delete a recording.

        Args:
            id: id of the recording.

        Raises:
            NotFoundError: the recording does not exist.
        """
        await self._connection.send(terminal_calls.recording(await self._ready_path(), id, "DELETE"))
