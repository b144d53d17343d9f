"""A TCP connection to a port inside a sandbox."""
# Made by tools/make_sync.py from its async twin: change that one.

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from .. import calls
from ..errors import UnreachableError
from ..transport import CutError
from . import io

if TYPE_CHECKING:
    from .client import Connection

#: Goes out at once, in bytes: the server takes no longer message.
_MESSAGE_BYTES = 256 * 1024
#: The close code where both sides have ended.
_NORMAL = 1000


class PortConnection:
    """A connection to a program. Use it in ``with``, or close it. One may send while another receives.

    Raises:
        UnreachableError: ``cut``: the connection was lost, or the program has reset it.
    """

    def __init__(self, socket: io.Socket) -> None:
        self._socket = socket
        self._ended = False

    @classmethod
    def open(cls, connection: Connection, at: str, port: int) -> PortConnection:
        """Connects."""
        return cls(connection.socket(calls.dial(at, port)))

    def __enter__(self) -> PortConnection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        """Tells the program something; waits while it takes nothing."""
        for at in range(0, len(data), _MESSAGE_BYTES):
            self._say(data[at : at + _MESSAGE_BYTES])

    def send_eof(self) -> None:
        """Nothing more is sent; the program may go on."""
        self._say('{"type":"eof"}')

    def _say(self, message: str | bytes) -> None:
        try:
            self._socket.send(message)
        except CutError as cut:
            raise _lost(cut) from None

    def receive(self) -> bytes:
        """What the program says next, at most some 64 KiB; empty at its end."""
        if self._ended:
            return b""
        try:
            message = self._socket.receive()
        except CutError as cut:
            if cut.code != _NORMAL:
                raise _lost(cut) from None
            # Both sides have ended: that is not said in a frame.
            message = ""
        # The only text that there is: the program's end.
        self._ended = isinstance(message, str)
        return b"" if isinstance(message, str) else message

    def close(self) -> None:
        """Ends it for both sides."""
        self._socket.close()


def _lost(cut: CutError) -> UnreachableError:
    return UnreachableError(f"the connection to the port ended ({cut.code})", code="cut")
