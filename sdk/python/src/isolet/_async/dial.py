"""TCP connection to a port in a sandbox."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from .. import calls
from ..errors import UnreachableError
from ..transport import CutError
from . import io

if TYPE_CHECKING:
    from .client import AsyncConnection

#: The server's limit on a message, in bytes.
_MESSAGE_BYTES = 256 * 1024
#: Close code after both sides have closed the connection.
_NORMAL = 1000


class AsyncPortConnection:
    """A TCP connection to a program in the sandbox. Use it in ``async with``, or close it. Sending and
    receiving at the same time is allowed.

    Raises:
        UnreachableError: ``cut``: the connection was lost, or the program reset it.
    """

    def __init__(self, socket: io.Socket) -> None:
        self._socket = socket
        self._ended = False

    @classmethod
    async def open(cls, connection: AsyncConnection, at: str, port: int) -> AsyncPortConnection:
        """Connect to a port."""
        return cls(await connection.socket(calls.dial(at, port)))

    async def __aenter__(self) -> AsyncPortConnection:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def send(self, data: bytes) -> None:
        """Send bytes; waits while the program does not read.

        Args:
            data: bytes of any length.
        """
        for at in range(0, len(data), _MESSAGE_BYTES):
            await self._send_frame(data[at : at + _MESSAGE_BYTES])

    async def send_eof(self) -> None:
        """Close the sending direction. Receiving stays possible."""
        await self._send_frame('{"type":"eof"}')

    async def _send_frame(self, message: str | bytes) -> None:
        try:
            await self._socket.send(message)
        except CutError as cut:
            raise _lost(cut) from None

    async def receive(self) -> bytes:
        """Receive the next bytes, at most about 64 KiB.

        Returns:
            the bytes; empty at the end of the connection.
        """
        if self._ended:
            return b""
        try:
            message = await self._socket.receive()
        except CutError as cut:
            if cut.code != _NORMAL:
                raise _lost(cut) from None
            # Both sides have closed: the server sends no separate frame for the end.
            message = ""
        # The only text message announces the end of the program's output.
        self._ended = isinstance(message, str)
        return b"" if isinstance(message, str) else message

    async def close(self) -> None:
        """Close both directions."""
        await self._socket.close()


def _lost(cut: CutError) -> UnreachableError:
    return UnreachableError(f"the connection to the port was lost ({cut.code})", code="cut")
