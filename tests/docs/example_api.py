"""An API that wants a key, and a resolver that knows its name."""

from __future__ import annotations

import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

#: An address for documentation, on an interface of the test.
ADDRESS = "203.0.113.7"
RESOLVER = "127.0.0.1:5353"


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        known = self.headers.get("Authorization") == "Bearer s3cret"
        self.send_response(200 if known else 401)
        self.end_headers()
        self.wfile.write(b"200: hello ana" if known else b"401: no key")

    def log_message(self, format: str, *args: object) -> None:
        """Write no log."""


class ExampleApi:
    """Serves on port 8080, and answers every lookup of an address with its own."""

    def __init__(self) -> None:
        self._http = ThreadingHTTPServer((ADDRESS, 8080), _Handler)
        self._resolver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        host, port = RESOLVER.split(":")
        self._resolver.bind((host, int(port)))
        for work in (self._http.serve_forever, self._resolve):
            threading.Thread(target=work, daemon=True).start()

    def _resolve(self) -> None:
        while True:
            try:
                query, client = self._resolver.recvfrom(512)
            except OSError:
                return
            self._resolver.sendto(answer(query), client)

    def close(self) -> None:
        """End both servers."""
        self._http.shutdown()
        self._http.server_close()
        self._resolver.close()


def answer(query: bytes) -> bytes:
    """The response to a DNS query with one question: an A record, or nothing for other types."""
    end = query.index(0, 12) + 1
    question = query[12 : end + 4]
    is_address = query[end : end + 2] == b"\0\1"
    header = query[:2] + b"\x81\x80\0\1" + (b"\0\1" if is_address else b"\0\0") + b"\0\0\0\0"
    record = b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4" + socket.inet_aton(ADDRESS)
    return header + question + (record if is_address else b"")
