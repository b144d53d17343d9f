"""Ports: listed, asked, exposed by links, and withdrawn."""

from __future__ import annotations

import httpx
import pytest

from isolet import AsyncSandbox, BadRequestError, NotFoundError
from isolet._async import io

pytestmark = pytest.mark.anyio


def page(url: str) -> tuple[int, str]:
    answer = httpx.get(url, timeout=20)
    return answer.status_code, answer.text


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
    assert [(one.port, one.name) for one in await sandbox.exposed_ports()] == [(8000, "web")]
    await sandbox.unexpose_port(8000)
    assert page(link.url)[0] == 401
    with pytest.raises(NotFoundError):
        await sandbox.unexpose_port(8000)
    with pytest.raises(BadRequestError):
        await sandbox.expose_port(0)
