"""A server under load, which is the only node of a fleet, and a Prometheus that reads its metrics."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "sdk/python/tests"))

from fleet import Fleet  # noqa: E402
from load import Load  # noqa: E402
from prometheus import Prometheus, wait_until  # noqa: E402
from registry import Registry  # noqa: E402
from server import Server, free_port  # noqa: E402


@pytest.fixture(scope="module")
def metrics_address() -> str:
    return f"127.0.0.1:{free_port()}"


@pytest.fixture(scope="module")
def load(metrics_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Load]:
    registry = Registry()
    folder = tmp_path_factory.mktemp("config")
    fleet = Fleet(folder)
    config = folder / "isolet.toml"
    images = f'[images]\nregistries = ["{registry.host}"]\n'
    config.write_text(f"not_found_limit_per_10s = 20\n{images}{fleet.table()}")
    server = Server(ISOLET_METRICS_LISTEN=metrics_address, ISOLET_CONFIG=str(config), ISOLET_WARM_POOL_SIZE="1")
    load = Load(server, registry)
    yield load
    load.end()
    server.end()
    fleet.end()
    registry.end()


@pytest.fixture(scope="module")
def prometheus(load: Load, metrics_address: str) -> Iterator[Prometheus]:
    prometheus = Prometheus(metrics_address)
    wait_until("the first scrape", lambda: prometheus.values('up{job="isolet"}') == [1.0])
    yield prometheus
    prometheus.end()
