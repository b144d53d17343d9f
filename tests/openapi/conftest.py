"""One real server for all tests of this folder."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from document import ROOT

sys.path.append(str(ROOT / "sdk/python/tests"))

from server import Server  # noqa: E402


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.end()
