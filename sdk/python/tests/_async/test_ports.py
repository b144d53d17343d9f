"""Ports: listing, requests, links and TCP connections."""

from __future__ import annotations

import httpx
import pytest

from isolet import AsyncSandbox, BadRequestError, NotFoundError, ServerError, UnreachableError
from isolet._async import io

pytestmark = pytest.mark.anyio


def page(url: str) -> tuple[int, str]:
    answer = httpx.get(url, timeout=20)
    return answer.status_code, answer.text


ECHO = """
import socketserver
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        size = 0
        while data := self.request.recv(65536):
            size += len(data)
            self.request.sendall(data)
        self.request.sendall(b"end of %d" % size)
socketserver.ThreadingTCPServer(("127.0.0.1", 9100), Echo).serve_forever()
"""


# Promises: Y14.
async def test_a_tcp_connection_to_a_program_works_until_either_side_closes(sandbox: AsyncSandbox) -> None:
    program = await sandbox.start_process(["python3", "-c", ECHO])
    await program.wait_for_port(9100)
    sent = bytes(range(251)) * 400
    async with await sandbox.connect_port(9100) as connection:
        await connection.send(sent)
        await connection.send_eof()
        received = b""
        while piece := await connection.receive():
            received += piece
        assert received == sent + b"end of %d" % len(sent)
        assert await connection.receive() == b""
    held = await sandbox.connect_port(9100)
    await held.send(b"x")
    assert await held.receive() == b"x"
    await program.kill("KILL")
    assert await held.receive() == b""
    await held.close()
    with pytest.raises(UnreachableError):
        await held.send(b"x")
    with pytest.raises(ServerError) as raised:
        await sandbox.connect_port(9100)
    assert raised.value.code == "not_listening"


async def test_a_port_is_listed_exposed_by_a_link_and_withdrawn(sandbox: AsyncSandbox) -> None:
    await sandbox.write_file("index.html", "<h1>here")
    await sandbox.exec("setsid python3 -m http.server --bind 127.0.0.1 8000 >/dev/null 2>&1 </dev/null &")
    for _ in range(600):
        listening = await sandbox.ports()
        if listening:
            break
        await io.sleep(0.05)
    assert [(one.port, one.addresses) for one in listening] == [(8000, ("127.0.0.1",))]
    answer = await sandbox.fetch_port(8000, "/index.html?x=1", headers={"accept": "text/html"})
    assert (answer.status_code, answer.text) == (200, "<h1>here")
    assert (await sandbox.fetch_port(8000, "none")).status_code == 404
    assert (await sandbox.fetch_port(8000, method="POST", content="x")).status_code == 501
    assert (await sandbox.fetch_port(8001)).status_code == 502
    link = await sandbox.expose_port(8000, name="web", ttl="1m")
    assert (link.port, link.name) == (8000, "web")
    assert link.token not in repr(link)
    assert page(f"{link.url}index.html") == (200, "<h1>here")
    chosen = [await sandbox.expose_port(9000, token="chosen-for-tests") for _ in range(2)]
    assert chosen[0].url == chosen[1].url
    assert chosen[0].token.endswith("~9000~chosen-for-tests")
    exposed = [(one.port, one.name, one.active) for one in await sandbox.exposed_ports()]
    assert exposed == [(8000, "web", True), (9000, None, False)]
    await sandbox.unexpose_port(8000)
    assert page(link.url)[0] == 401
    with pytest.raises(NotFoundError):
        await sandbox.unexpose_port(8000)
    with pytest.raises(BadRequestError):
        await sandbox.expose_port(0)
