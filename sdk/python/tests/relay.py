"""A wire between a client and a server that can be cut."""

from __future__ import annotations

import socket
import threading
from urllib.parse import urlsplit


class Relay:
    """Hands bytes on, both ways, until it is told to cut."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._to = (parts.hostname or "", parts.port or 80)
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self._name, self._server = (f"Host: 127.0.0.1:{p}".encode() for p in (port, self._to[1]))
        self._open: list[socket.socket] = []
        #: How many connections there were.
        self.connections = 0
        #: New bytes of the client are swallowed: it believes that they were sent.
        self.deaf = False
        #: New bytes of the server are swallowed, as if they were still on their way.
        self.mute = False
        #: So many of the next answers break the connection in place of being handed on.
        self.cut_answers = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._to)
            except OSError:
                return
            self.connections += 1
            self._open += [client, server]
            threading.Thread(target=self._hand_on, args=(client, server, True), daemon=True).start()
            threading.Thread(target=self._hand_on, args=(server, client, False), daemon=True).start()

    def _hand_on(self, source: socket.socket, target: socket.socket, from_client: bool) -> None:
        try:
            while data := source.recv(65536):
                if source not in self._open:
                    # It was cut, and nothing that was on its way arrives.
                    break
                if not from_client and self.cut_answers > 0:
                    self.cut_answers -= 1
                    break
                if not (self.deaf if from_client else self.mute):
                    # A server answers to its own name alone.
                    target.sendall(data.replace(self._name, self._server) if from_client else data)
        except OSError:
            pass
        for end in (source, target):
            _shut(end)

    def cut(self) -> None:
        """Breaks all connections; the next ones are served."""
        ends, self._open = self._open, []
        self.deaf = self.mute = False
        for end in ends:
            _shut(end)

    def close(self) -> None:
        self._listener.close()
        self.cut()


def _shut(end: socket.socket) -> None:
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
