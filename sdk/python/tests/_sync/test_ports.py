"""Ports: listed, asked, exposed by links, and withdrawn."""
# Made by tools/make_sync.py from its async twin: change that one.

from __future__ import annotations

import httpx
import pytest

from isolet import Sandbox, BadRequestError, NotFoundError
from isolet._sync import io

pytestmark = pytest.mark.anyio


def page(url: str) -> tuple[int, str]:
    answer = httpx.get(url, timeout=20)
    return answer.status_code, answer.text


def test_a_port_is_listed_exposed_by_a_link_and_withdrawn(sandbox: Sandbox) -> None:
    sandbox.write_file("index.html", "<h1>here")
    sandbox.exec("setsid python3 -m http.server --bind 127.0.0.1 8000 >/dev/null 2>&1 </dev/null &")
    for _ in range(600):
        listening = sandbox.ports()
        if listening:
            break
        io.sleep(0.05)
    assert [(one.port, one.addresses) for one in listening] == [(8000, ("127.0.0.1",))]
    answer = sandbox.fetch_port(8000, "/index.html?x=1", headers={"accept": "text/html"})
    assert (answer.status_code, answer.text) == (200, "<h1>here")
    assert (sandbox.fetch_port(8000, "none")).status_code == 404
    assert (sandbox.fetch_port(8000, method="POST", content="x")).status_code == 501
    assert (sandbox.fetch_port(8001)).status_code == 502
    link = sandbox.expose_port(8000, name="web", ttl="1m")
    assert (link.port, link.name) == (8000, "web")
    assert link.token not in repr(link)
    assert page(f"{link.url}index.html") == (200, "<h1>here")
    assert [(one.port, one.name) for one in sandbox.exposed_ports()] == [(8000, "web")]
    sandbox.unexpose_port(8000)
    assert page(link.url)[0] == 401
    with pytest.raises(NotFoundError):
        sandbox.unexpose_port(8000)
    with pytest.raises(BadRequestError):
        sandbox.expose_port(0)
