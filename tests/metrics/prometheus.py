"""A real Prometheus on loopback."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import httpx
from server import free_port

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "target/clients/prometheus/usr/bin"
#: Time limit of everything that this machine does alone, in seconds.
WAIT_S = 60.0


def wait_until(what: str, done: Callable[[], bool]) -> None:
    until = time.monotonic() + WAIT_S
    while not done():
        assert time.monotonic() < until, f"not in {WAIT_S} s: {what}"
        time.sleep(0.2)


class Prometheus:
    """A real Prometheus on loopback, with the alerts of this repository."""

    def __init__(self, target: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix=f"isolet-prometheus-{os.getpid()}-")
        folder = Path(self._folder.name)
        config = folder / "prometheus.yml"
        config.write_text(
            "global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\n"
            f"rule_files: [{ROOT / 'packaging/prometheus/alerts.yml'}]\n"
            "scrape_configs:\n"
            f"  - {{job_name: isolet, static_configs: [{{targets: ['{target}']}}]}}\n"
        )
        address = f"127.0.0.1:{free_port()}"
        flags = [f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={address}"]
        self._log = folder / "log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen([PROGRAMS / "prometheus", *flags], stdout=log, stderr=log)
        self._http = httpx.Client(base_url=f"http://{address}/api/v1", trust_env=False, timeout=WAIT_S)
        wait_until("Prometheus is ready", self._ready)

    def _ready(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()
        try:
            return self._http.get("/status/buildinfo").is_success
        except httpx.TransportError:
            return False

    def get(self, path: str, **query: str) -> dict:
        answer = self._http.get(path, params=query).json()
        assert answer["status"] == "success", answer
        return answer["data"]

    def values(self, expression: str) -> list[float]:
        """The current values of a query, without those that are not numbers."""
        found = [float(one["value"][1]) for one in self.get("/query", query=expression)["result"]]
        return [value for value in found if value == value]

    def end(self) -> None:
        self._http.close()
        self._process.terminate()
        self._process.wait(WAIT_S)
        self._folder.cleanup()
