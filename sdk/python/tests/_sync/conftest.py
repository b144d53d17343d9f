"""Clients of the server that all tests share."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from server import Server

from isolet import Isolet, Sandbox


@pytest.fixture
def client(server: Server) -> Iterator[Isolet]:
    with Isolet() as client:
        yield client


@pytest.fixture
def sandbox(client: Isolet, fresh: Callable[[], str]) -> Iterator[Sandbox]:
    with client.sandbox(fresh()) as sandbox:
        yield sandbox
