"""The log is JSON on standard error, and a request can be found in it by its id."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from server import KEY, ROOT, free_port

#: An id has at most this many characters.
ID_MAX = 128


class LoggingServer:
    """A server whose standard output and standard error are apart."""

    def __init__(self, folder: Path, **settings: str) -> None:
        programs = Path(os.environ.get("ISOLET_PROGRAMS", ROOT / "target/programs"))
        self.program = programs / "isolet"
        self.data = folder / "data"
        self.stderr = folder / "stderr"
        self.stdout = folder / "stdout"
        self.url = f"http://127.0.0.1:{free_port()}"
        self._env = {"PATH": os.environ["PATH"], "ISOLET_DATA_DIR": str(self.data)}
        env = {
            **self._env,
            "ISOLET_API_KEY": KEY,
            "ISOLET_LISTEN": self.url.removeprefix("http://"),
            "ISOLET_LOG_JSON": "1",
            "ISOLET_WARM_POOL_SIZE": "0",
            **settings,
        }
        with open(self.stdout, "wb") as stdout, open(self.stderr, "wb") as stderr:
            command = [self.program, "serve"]
            self._process = subprocess.Popen(command, stdout=stdout, stderr=stderr, env=env, start_new_session=True)
        until = time.monotonic() + 60
        while True:
            try:
                if httpx.get(f"{self.url}/health", trust_env=False).is_success:
                    return
            except httpx.TransportError:
                pass
            assert self._process.poll() is None and time.monotonic() < until, self.stderr.read_text()
            time.sleep(0.05)

    def lines(self) -> list[dict]:
        """The log. Fails if a line is not an object of JSON."""
        lines = [json.loads(line) for line in self.stderr.read_text().splitlines()]
        assert all(isinstance(line, dict) for line in lines)
        return lines

    def answered(self, id: str) -> list[dict]:
        lines = [line for line in self.lines() if line.get("request_id") == id]
        return [line for line in lines if line["fields"]["message"] == "answered"]

    def request(self, method: str, path: str, **headers: str) -> httpx.Response:
        headers = {"authorization": f"Bearer {KEY}", **headers}
        return httpx.request(method, f"{self.url}{path}", headers=headers, trust_env=False, timeout=60)

    def log_level(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([self.program, "log-level", *arguments], env=self._env, capture_output=True, text=True)

    def end(self) -> None:
        for sandbox in self.request("GET", "/v1/sandboxes").json():
            self.request("DELETE", f"/v1/sandboxes/{sandbox['id']}")
        self._process.terminate()
        self._process.wait(60)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LoggingServer]:
    server = LoggingServer(tmp_path)
    yield server
    server.end()


def test_each_line_is_an_object_and_a_request_is_found_by_its_id(server: LoggingServer) -> None:
    assert server.request("GET", "/v1/sandboxes", **{"x-request-id": "before"}).headers["x-request-id"] == "before"
    assert server.answered("before") == [], "requests are not logged by default"
    shown = server.log_level()
    assert (shown.returncode, shown.stdout) == (0, "info\n"), shown
    assert server.log_level("debug").stdout == "debug\n"

    answer = server.request("GET", "/v1/sandboxes/missing", **{"x-request-id": "my-request.1"})
    assert answer.status_code == 404
    assert answer.headers["x-request-id"] == "my-request.1"
    (line,) = server.answered("my-request.1")
    assert line["level"] == "DEBUG"
    assert line["fields"]["status"] == 404 and line["fields"]["path"] == "/v1/sandboxes/missing"

    assert server.log_level("info").stdout == "info\n"
    server.request("GET", "/v1/sandboxes", **{"x-request-id": "after"})
    assert server.answered("after") == []
    messages = [line["fields"]["message"] for line in server.lines()]
    assert "serving" in messages
    # The address is for people, and not part of the log.
    assert "open a shell" in server.stdout.read_text() and "open a shell" not in server.stderr.read_text()


def test_an_id_that_a_log_cannot_show_is_replaced(server: LoggingServer) -> None:
    ids = set()
    for bad in ["", "two words", 'quote"', "x" * (ID_MAX + 1)]:
        own = server.request("GET", "/health", **{"x-request-id": bad}).headers["x-request-id"]
        assert own != bad and 0 < len(own) <= ID_MAX
        ids.add(own)
    ids.add(server.request("GET", "/health").headers["x-request-id"])
    assert len(ids) == 5, "each request has an id of its own"


def test_a_wrong_filter_changes_nothing(server: LoggingServer, tmp_path: Path) -> None:
    done = server.log_level("loud")
    assert done.returncode == 1 and "log filter" in done.stderr
    assert server.log_level().stdout == "info\n"
    done = server.log_level("--data-dir", str(tmp_path))
    assert done.returncode == 1 and "no server runs" in done.stderr


def test_a_server_that_does_not_start_says_so_in_json(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        LoggingServer(tmp_path, ISOLET_LISTEN="192.0.2.1:80")
    (line,) = [json.loads(line) for line in (tmp_path / "stderr").read_text().splitlines()]
    assert line["level"] == "ERROR" and "192.0.2.1:80" in line["fields"]["error"]
    with pytest.raises(AssertionError):
        LoggingServer(tmp_path, ISOLET_LOG="loud")
    (line,) = [json.loads(line) for line in (tmp_path / "stderr").read_text().splitlines()]
    assert "loud" in line["fields"]["error"]
