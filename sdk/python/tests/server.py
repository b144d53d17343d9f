"""A real server for the tests, with its own port and data."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import httpx

ROOT = Path(__file__).resolve().parents[3]
KEY = "test-key-of-the-python-sdk"
#: Time limit for starting and stopping the server, in seconds.
_WAIT_S = 60.0
#: Ports below the range from which the kernel takes those of clients: no connection uses one before its
#: server, or while the server is restarted.
_PORTS = range(12_000, 16_000)
_next_port = itertools.count(os.getpid() * 8)


def free_port() -> int:
    for number in itertools.islice(_next_port, len(_PORTS)):
        port = _PORTS[number % len(_PORTS)]
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return port
    raise RuntimeError("no port is free")


def kill_agent(marker: str) -> None:
    """Kill the agent of the sandbox that has a file ``marker`` in its workspace."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            is_agent = process.joinpath("cmdline").read_bytes().startswith(b"isolet-agent")
            if is_agent and process.joinpath("root/workspace", marker).exists():
                os.kill(int(process.name), signal.SIGKILL)
                return
        except OSError:
            continue
    raise RuntimeError(f"no agent has {marker}")


class Server:
    """A server that tests can kill and restart on the same port and data."""

    def __init__(self, program: Path | None = None, **settings: str) -> None:
        self._settings = settings
        programs = Path(os.environ.get("ISOLET_PROGRAMS", ROOT / "target/programs"))
        self.program = program or programs / "isolet"
        self._folder = Path(tempfile.mkdtemp(prefix=f"isolet-python-{os.getpid()}-"))
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.data = self._folder / "data"
        # The runner of all tests keeps the logs; otherwise they end with the server.
        logs = os.environ.get("ISOLET_TEST_LOGS")
        self.log = Path(logs) / f"python-{self.port}.log" if logs else self._folder / "log"
        self.start()

    def start(self) -> None:
        environment = {
            "PATH": os.environ["PATH"],
            "ISOLET_API_KEY": KEY,
            "ISOLET_DATA_DIR": str(self.data),
            "ISOLET_LISTEN": f"127.0.0.1:{self.port}",
            "ISOLET_WARM_POOL_SIZE": "0",
            # Time that a command waits for a client to read its output, in ms.
            "ISOLET_STALL_MS": "4000",
            "RUST_LOG": "warn",
            **self._settings,
        }
        # A separate process group: Ctrl-C in the tests must not reach the server.
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                [self.program, "serve"], stdout=log, stderr=log, env=environment, start_new_session=True
            )
        until = time.monotonic() + _WAIT_S
        while True:
            try:
                if httpx.get(f"{self.url}/health", trust_env=False).is_success:
                    return
            except httpx.TransportError:
                pass
            if self._process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(self.log.read_text())
            time.sleep(0.02)

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(_WAIT_S)

    def end(self) -> None:
        headers = {"authorization": f"Bearer {KEY}"}
        with httpx.Client(base_url=self.url, headers=headers, trust_env=False, timeout=_WAIT_S) as http:
            for sandbox in http.get("/v1/sandboxes?limit=1000").json():
                http.delete(f"/v1/sandboxes/{sandbox['id']}")
        self._process.terminate()
        self._process.wait(_WAIT_S)
        shutil.rmtree(self._folder, ignore_errors=True)
