"""Clients of the shared server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
from server import Server

from isolet import AsyncIsolet, AsyncSandbox


@pytest.fixture
async def client(server: Server, anyio_backend: str) -> AsyncIterator[AsyncIsolet]:
    async with AsyncIsolet() as client:
        yield client


@pytest.fixture
async def sandbox(client: AsyncIsolet, fresh: Callable[[], str]) -> AsyncIterator[AsyncSandbox]:
    async with client.sandbox(fresh()) as sandbox:
        yield sandbox
