"""Servers that export their traces to a receiver of the test."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "sdk/python/tests"))

from receiver import Receiver  # noqa: E402
from server import Server  # noqa: E402

#: Part of the file of headers, and never of a trace.
RECEIVER_KEY = "key-of-the-receiver"


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.end()


@pytest.fixture(scope="module")
def server(receiver: Receiver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Traces only requests whose clients ask for it."""
    folder = tmp_path_factory.mktemp("config")
    headers = folder / "headers"
    headers.write_text(f"# for the receiver\nx-receiver-key: {RECEIVER_KEY}\n")
    config = folder / "isolet.toml"
    config.write_text(
        f'[telemetry]\notlp_endpoint = "{receiver.url}"\notlp_headers_file = "{headers}"\n'
        'sample_ratio = 0.0\nservice_name = "isolet-test"\n'
    )
    server = Server(ISOLET_CONFIG=str(config))
    yield server
    server.end()
