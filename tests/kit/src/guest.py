"""A program that listens in a sandbox and reports its requests: `guest.py PORT [ADDRESS]`."""

import hashlib
import http.server
import json
import socket
import sys
import time
import urllib.parse


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def pieces(self):
        if self.headers.get("transfer-encoding") == "chunked":
            while True:
                size = int(self.rfile.readline().split(b";")[0], 16)
                if size == 0:
                    while self.rfile.readline() not in (b"\r\n", b""):
                        pass
                    return
                yield self.rfile.read(size)
                self.rfile.readline()
        left = int(self.headers.get("content-length") or 0)
        while left > 0:
            piece = self.rfile.read1(min(left, 1 << 16))
            if not piece:
                return
            left -= len(piece)
            yield piece

    def answer(self, status, body=b"", headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if status not in (204, 304):
            self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def any(self):
        path, _, query = self.path.partition("?")
        word = path.split("/")[1]
        make = getattr(self, "on_" + word.replace("-", "_"), self.on_echo)
        make(path, urllib.parse.parse_qs(query))

    def __getattr__(self, name):
        if name.startswith("do_"):
            return self.any
        raise AttributeError(name)

    def on_echo(self, path, query):
        digest, count = hashlib.sha256(), 0
        for piece in self.pieces():
            digest.update(piece)
            count += len(piece)
        said = {
            "method": self.command,
            "path": self.path,
            "headers": [[name.lower(), value] for name, value in self.headers.items()],
            "bytes": count,
            "sha256": digest.hexdigest(),
            "peer": self.client_address[1],
        }
        self.answer(200, json.dumps(said).encode(), [("content-type", "application/json")])

    def on_bytes(self, path, query):
        count = int(path.split("/")[2])
        self.send_response(200)
        self.send_header("content-length", str(count))
        self.end_headers()
        piece = bytes(range(256)) * 256
        while count > 0 and self.command != "HEAD":
            self.wfile.write(piece[: min(count, len(piece))])
            count -= len(piece)

    def on_chunks(self, path, query):
        self.send_response(200)
        self.send_header("transfer-encoding", "chunked")
        self.send_header("trailer", "x-sum")
        self.end_headers()
        self.wfile.write(b"4\r\none,\r\n3\r\ntwo\r\n0\r\nx-sum: 7\r\n\r\n")

    def on_events(self, path, query):
        """One event immediately, the next when /tmp/go exists."""
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self.close_connection = True
        self.wfile.write(b"data: first\n\n")
        import os

        while not os.path.exists("/tmp/go"):
            time.sleep(0.02)
        self.wfile.write(b"data: second\n\n")

    def on_endless(self, path, query):
        self.send_response(200)
        self.end_headers()
        self.close_connection = True
        while True:
            self.wfile.write(b"tick\n")
            time.sleep(0.05)

    def on_status(self, path, query):
        self.answer(int(path.split("/")[2]), b"so\n", [("x-own", "kept")])

    def on_redirect(self, path, query):
        self.answer(302, b"", [("location", query["to"][0])])

    def on_headers(self, path, query):
        """Answers with the headers that the query names."""
        self.answer(200, b"<p>here", [(name, one) for name in query for one in query[name]])

    def on_early(self, path, query):
        """Refuses a body unread."""
        self.close_connection = True
        self.answer(413, b"too much\n", [("connection", "close")])
        # Unread data at a close would discard the answer.
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_WR)
        self.connection.settimeout(5)
        try:
            while self.connection.recv(65536):
                pass
        except OSError:
            pass

    def on_continue(self, path, query):
        self.wfile.write(b"HTTP/1.1 103 Early Hints\r\nlink: </a.css>\r\n\r\n" * 3)
        self.answer(200, b"after hints\n")

    def on_never(self, path, query):
        open("/tmp/asked", "a").write("x")
        time.sleep(1000)

    def on_upgrade(self, path, query):
        """Switches to raw mode and echoes every byte."""
        self.close_connection = True
        self.send_response(101)
        self.send_header("connection", "Upgrade")
        self.send_header("upgrade", "websocket")
        self.send_header("sec-websocket-accept", "x")
        protocol = self.headers.get("sec-websocket-protocol")
        if protocol:
            self.send_header("sec-websocket-protocol", protocol)
        self.end_headers()
        self.wfile.write(("host: " + self.headers["host"] + "\n").encode())
        self.wfile.flush()
        while True:
            piece = self.connection.recv(65536)
            if not piece:
                return
            self.connection.sendall(piece)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_):
        pass


port, address = int(sys.argv[1]), (sys.argv[2:] or ["127.0.0.1"])[0]
if ":" in address:
    Server.address_family = socket.AF_INET6
Server((address, port), Handler).serve_forever()
