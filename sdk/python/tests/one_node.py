"""A fleet of one node: a real etcd on loopback, and a server that joins it."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import httpx
from server import KEY, ROOT, Server, free_port

#: Where `make etcd` unpacks Debian's packages.
_ETCD = ROOT / "target/clients/etcd/usr/bin/etcd"
_WAIT_S = 30
NODE = "node-1"


class OneNode:
    """etcd, and the only node of its fleet."""

    def __init__(self, program: Path, folder: Path) -> None:
        etcd = f"http://127.0.0.1:{free_port()}"
        members = f"http://127.0.0.1:{free_port()}"
        command = [
            *(str(_ETCD), "--name", "member", "--data-dir", str(folder / "etcd")),
            *("--listen-client-urls", etcd, "--advertise-client-urls", etcd),
            *("--listen-peer-urls", members, "--initial-advertise-peer-urls", members),
            *("--initial-cluster", f"member={members}", "--log-outputs", "stderr", "--unsafe-no-fsync"),
        ]
        with (folder / "etcd.log").open("wb") as log:
            self._etcd = subprocess.Popen(command, stdout=log, stderr=log)
        authority, peer = folder / "authority", folder / "peer"
        for words in (["init"], ["issue", NODE, "--out", str(peer)]):
            command = [str(program), "cluster", *words, "--dir", str(authority)]
            subprocess.run(command, check=True, capture_output=True)
        _wait_until_healthy(etcd)
        config = folder / "isolet.toml"
        config.write_text(
            f'[cluster]\netcd = ["{etcd}"]\nnode = "{NODE}"\n'
            f'advertise = "127.0.0.1:{free_port()}"\npeer_dir = "{peer}"\n'
        )
        self._server = Server(program, ISOLET_CONFIG=str(config))
        self.url = self._server.url
        self.key = KEY
        self._wait_until_ready()

    def _wait_until_ready(self) -> None:
        headers = {"authorization": f"Bearer {KEY}"}
        until = time.monotonic() + _WAIT_S
        while True:
            answer = httpx.get(f"{self.url}/v1/nodes/{NODE}", headers=headers, trust_env=False)
            if answer.json().get("state") == "ready":
                return
            if time.monotonic() > until:
                raise RuntimeError(f"the node is not ready: {answer.text}")
            time.sleep(0.02)

    def end(self) -> None:
        self._server.end()
        self._etcd.terminate()
        self._etcd.wait(_WAIT_S)


def _wait_until_healthy(etcd: str) -> None:
    until = time.monotonic() + _WAIT_S
    while True:
        try:
            if httpx.get(f"{etcd}/health", trust_env=False).is_success:
                return
        except httpx.TransportError:
            pass
        if time.monotonic() > until:
            raise RuntimeError("etcd did not start")
        time.sleep(0.02)
