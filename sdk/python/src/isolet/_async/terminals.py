"""The terminals of a sandbox: attached, listed, ended, recorded; tickets."""

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
    """The terminals of a sandbox."""

    _connection: AsyncConnection
    id: str

    async def _ready(self) -> None:
        raise NotImplementedError

    async def _at(self) -> str:
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
        """The terminal of a session, which is opened where none runs, and runs on when nobody is attached.

        Args:
            session: whose; it is made where it is not there.
            cols: width of the window that shows it, at most 1000.
            rows: height of the window that shows it, at most 400.
            command: program and arguments in place of bash, when this opens the terminal.
            mode: ``view`` only looks; ``edit`` unless told.
            name: how others see this client, at most 64 bytes.
            record: record it from here on.
            resume: come back to a terminal that was left: what its ``id`` said. It is not opened anew.
            since: with ``resume``: go on behind this offset; a snapshot of the screen unless told.
        """
        if isinstance(command, str):
            raise UsageError("a terminal's command is a list: program and arguments", code="bad_command")
        if mode not in ("edit", "view"):
            raise UsageError(f"{mode!r} is no mode: edit or view", code="bad_mode")
        how = Attach(session, command, mode, name, record, open=True)
        at = None if resume is None else (resume, since)
        return AsyncTerminal(self._connection, self.id, self._ready, how, (cols, rows), at)

    async def terminals(self) -> list[TerminalInfo]:
        """Those that run; none of a sandbox that sleeps."""
        told = await self._connection.json(terminal_calls.terminals(await self._at()))
        return [TerminalInfo.of(one) for one in told]

    async def close_terminal(self, session: str = "default") -> None:
        """Hangs up a session's terminal, and kills what is left of its program. No error where none runs."""
        with suppress(NotFoundError):
            await self._connection.send(terminal_calls.close(await self._at(), session))

    async def create_ticket(
        self,
        use: str = "terminal",
        *,
        session: str | None = None,
        mode: str | None = None,
        port: int | None = None,
        ttl: Duration | None = None,
    ) -> Ticket:
        """Takes a ticket, which opens one WebSocket of this sandbox, once: for pages, which are not to
        know the key.

        Args:
            use: ``terminal``, ``shell`` or ``port``.
            session: ``default`` unless told; for a shell a private one unless told.
            mode: ``view`` opens a terminal that runs, to look only.
            port: which, for ``port``.
            ttl: seconds that it lives: 30 unless told, at most 300.

        Raises:
            TooManyRequestsError: a tenant holds at most 1000 at once.
        """
        await self._ready()
        call = terminal_calls.ticket(self.id, use=use, session=session, mode=mode, port=port, ttl=ttl)
        return Ticket.of(await self._connection.json(call))

    async def recordings(self) -> list[Recording]:
        """What was recorded of its terminals; at most 100."""
        told = await self._connection.json(terminal_calls.recordings(await self._at()))
        return [Recording.of(one) for one in told]

    async def start_recording(self, session: str = "default") -> None:
        """Begins to record a session's terminal, which runs; until it ends, or 64 MiB. No error where it is
        recorded already.

        Raises:
            NotFoundError: ``no_terminal``: none runs.
        """
        await self._connection.send(terminal_calls.record(await self._at(), session, "POST"))

    async def stop_recording(self, session: str = "default") -> None:
        """Ends it; the recording stays. No error where none grows."""
        with suppress(NotFoundError):
            await self._connection.send(terminal_calls.record(await self._at(), session, "DELETE"))

    async def read_recording(self, id: str) -> AsyncFileStream:
        """A recording's bytes, also while it grows: asciicast version 2.

        Raises:
            NotFoundError: there is none of this id.
        """
        response = await self._connection.open(terminal_calls.recording(await self._at(), id))
        return AsyncFileStream(self._connection.url, response)

    async def delete_recording(self, id: str) -> None:
        """Removes a recording."""
        await self._connection.send(terminal_calls.recording(await self._at(), id, "DELETE"))
