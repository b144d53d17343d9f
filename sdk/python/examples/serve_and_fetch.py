"""Starts a web server in a sandbox, waits until it answers, sends it a request, and creates a link to it.

python3 examples/serve_and_fetch.py
"""

from __future__ import annotations

from isolet import Isolet

SERVER = """\
from http.server import BaseHTTPRequestHandler, HTTPServer

class Page(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"you asked for {self.path}".encode())

HTTPServer(("127.0.0.1", 8000), Page).serve_forever()
"""


def main() -> None:
    """Run the example."""
    with Isolet() as client, client.create_sandbox(sleep_after="10m") as sandbox:
        sandbox.write_file("server.py", SERVER)
        server = sandbox.start_process(["python3", "server.py"], id="web")
        server.wait_for_port(8000, path="/", timeout="30s")
        answer = sandbox.fetch_port(8000, "/a?b=c")
        print(answer.status_code, answer.text)
        link = sandbox.expose_port(8000, name="web", ttl="10m")
        print("link for users without a key, valid until", link.expires_at)
        print([(port.port, port.addresses) for port in sandbox.ports()])
        print("log:", server.logs().stderr.decode().splitlines()[-1])
        print("ended:", server.kill().status)


if __name__ == "__main__":
    main()
