"""One server for all tests, as those of the SDK have it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from server import KEY, Server


@pytest.fixture(scope="session", autouse=True)
def server() -> Iterator[Server]:
    server = Server()
    for name in [name for name in os.environ if name.startswith("ISOLET_")]:
        del os.environ[name]
    os.environ["ISOLET_URL"], os.environ["ISOLET_API_KEY"] = server.url, KEY
    yield server
    server.end()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
