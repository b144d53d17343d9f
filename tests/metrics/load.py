"""Work for a server: everything that its metrics count."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from urllib.parse import quote

import httpx
from isolet import Isolet
from registry import Registry
from server import KEY, Server

#: Ids that no metric may contain.
IDS = ["secret-box-0", "secret-box-1", "secret-box-2", "secret-box-3"]
SESSION = "secret-session"


def children(pid: int, name: str) -> list[int]:
    """The children of a process that run this program."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue
        head, _, tail = text.rpartition(") ")
        if head.endswith(f"({name}") and int(tail.split()[1]) == pid:
            found.append(int(stat.parent.name))
    return found


class Load:
    """One round of work after the other."""

    def __init__(self, server: Server, registry: Registry) -> None:
        self.server = server
        self._registry = registry
        headers = {"authorization": f"Bearer {KEY}"}
        self.http = httpx.Client(base_url=server.url, headers=headers, trust_env=False, timeout=60)
        self._client = Isolet(server.url, api_key=KEY)

    def _post(self, path: str, body: dict) -> httpx.Response:
        return self.http.post(path, json=body).raise_for_status()

    def round(self) -> None:
        """Creates, wakes, sleeps, commands, transfers, a denial, a pull, refusals and deletes."""
        with ThreadPoolExecutor(len(IDS)) as pool:
            rules = {"network": {"allow": ["example.com:443"]}}
            bodies = [{"id": name, **(rules if name == IDS[0] else {})} for name in IDS]
            list(pool.map(lambda body: self._post("/v1/sandboxes", body), bodies))
        first, second = IDS[:2]
        for _ in range(5):
            self._post(f"/v1/sandboxes/{first}/exec", {"argv": ["sh", "-c", "echo out; echo error >&2"]})
            self._post(f"/v1/sandboxes/{first}/sessions/{SESSION}/exec", {"command": "echo hello; echo error >&2"})
        # A name that no rule allows.
        self._post(f"/v1/sandboxes/{first}/exec", {"argv": ["getent", "hosts", "denied.example"]})
        path = f"/v1/sandboxes/{first}/files/data"
        self.http.put(path, content=b"x" * 100_000).raise_for_status()
        assert len(self.http.get(path).raise_for_status().content) == 100_000
        self._port(first)
        with self._client.sandbox(first).terminal(cols=80, rows=24) as terminal:
            terminal.write("echo $((6 * 7))\n")
            terminal.wait_for("42", timeout="20s")
        self._post(f"/v1/sandboxes/{second}/sleep", {})
        self._post(f"/v1/sandboxes/{second}/exec", {"argv": ["true"]})
        self._images()
        self._wrong_keys()

    def _wrong_keys(self) -> None:
        """Sends requests with a wrong key until the limit on them refuses one."""
        headers = {"authorization": "Bearer wrong"}
        with httpx.Client(base_url=self.server.url, headers=headers, trust_env=False) as http:
            assert any(http.get("/v1/sandboxes").status_code == 429 for _ in range(1000))

    def _port(self, sandbox: str) -> None:
        argv = ["python3", "-m", "http.server", "8080", "--bind", "127.0.0.1"]
        process = self._post(f"/v1/sandboxes/{sandbox}/processes", {"argv": argv}).json()["id"]
        path = f"/v1/sandboxes/{sandbox}/processes/{process}"
        self._post(f"{path}/wait", {"port": {"port": 8080}})
        self.http.get(f"/v1/sandboxes/{sandbox}/ports/8080/").raise_for_status()
        self._post(f"{path}/kill", {"signal": "KILL"})

    def _images(self) -> None:
        image = f"{self._registry.host}/made/here:1"
        self._post("/v1/images/pull", {"image": image})
        self.http.post("/v1/images/pull", json={"image": "127.0.0.1:1/not/allowed:1"})
        name = "archive.example/made/here:1"
        imported = self.http.post(
            "/v1/images/import",
            params={"name": name},
            content=self._registry.archive,
            headers={"content-type": "application/x-tar"},
        )
        imported.raise_for_status()
        for one in (image, name):
            self.http.delete(f"/v1/images/{quote(one, safe='')}").raise_for_status()

    def follow_events(self) -> AbstractContextManager[httpx.Response]:
        """An event stream, which is in progress until it is closed."""
        return self.http.stream("GET", "/v1/events", headers={"accept": "text/event-stream"})

    def kill_launcher(self) -> None:
        """Kills the launcher and the process that owns the veth pairs. The server replaces both."""
        for process in children(self.server.pid, "isolet-launcher"):
            os.kill(process, signal.SIGKILL)
        time.sleep(0.5)

    def delete(self) -> None:
        for name in IDS:
            self.http.delete(f"/v1/sandboxes/{name}")

    def end(self) -> None:
        self.delete()
        self.http.close()
