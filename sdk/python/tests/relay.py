"""A TCP relay between client and server whose connections tests can cut."""

from __future__ import annotations

import socket
import threading
from urllib.parse import urlsplit


class Relay:
    """Relays bytes in both directions until a test cuts the connections."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._server_address = (parts.hostname or "", parts.port or 80)
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self._name, self._server = (f"Host: 127.0.0.1:{p}".encode() for p in (port, self._server_address[1]))
        self._open: list[socket.socket] = []
        #: Number of connections so far.
        self.connections = 0
        #: Discard bytes from the client, which assumes that they arrived.
        self.deaf = False
        #: Discard bytes from the server, as if they were still in transit.
        self.mute = False
        #: Number of upcoming responses that cut the connection instead of being relayed.
        self.cut_answers = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._server_address)
            except OSError:
                return
            self.connections += 1
            self._open += [client, server]
            threading.Thread(target=self._relay, args=(client, server, True), daemon=True).start()
            threading.Thread(target=self._relay, args=(server, client, False), daemon=True).start()

    def _relay(self, source: socket.socket, target: socket.socket, from_client: bool) -> None:
        try:
            while data := source.recv(65536):
                if source not in self._open:
                    # Cut: bytes in transit are lost.
                    break
                if not from_client and self.cut_answers > 0:
                    self.cut_answers -= 1
                    break
                if not (self.deaf if from_client else self.mute):
                    # The server accepts only its own host name.
                    target.sendall(data.replace(self._name, self._server) if from_client else data)
        except OSError:
            pass
        for end in (source, target):
            _shut(end)

    def cut(self) -> None:
        """Cut all connections; later ones work."""
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
