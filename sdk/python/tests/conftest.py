"""One server for all tests, and a relay for tests that cut connections."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator

import pytest
from one_node import OneNode
from relay import Relay
from server import KEY, Server


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    server = Server()
    for name in [name for name in os.environ if name.startswith("ISOLET_")]:
        del os.environ[name]
    os.environ["ISOLET_URL"], os.environ["ISOLET_API_KEY"] = server.url, KEY
    yield server
    server.end()


@pytest.fixture(scope="session")
def one_node(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneNode]:
    node = OneNode(server.program, tmp_path_factory.mktemp("fleet"))
    yield node
    node.end()


@pytest.fixture
def relay(server: Server) -> Iterator[Relay]:
    relay = Relay(server.url)
    yield relay
    relay.close()


@pytest.fixture
def fresh() -> Callable[[], str]:
    """Generate unused ids."""
    return lambda: f"py-{uuid.uuid4().hex}"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
