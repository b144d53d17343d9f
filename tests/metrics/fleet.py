"""A fleet of one node: a real etcd on loopback, and the node's certificate."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import httpx
from prometheus import ROOT, WAIT_S, wait_until
from server import free_port

#: Where `make etcd` unpacks Debian's packages.
ETCD = ROOT / "target/clients/etcd/usr/bin/etcd"
NODE = "node-1"


class Fleet:
    """etcd, and the files with which a server joins it."""

    def __init__(self, folder: Path) -> None:
        self._url = f"http://127.0.0.1:{free_port()}"
        members = f"http://127.0.0.1:{free_port()}"
        command = [
            *(str(ETCD), "--name", "member", "--data-dir", str(folder / "etcd")),
            *("--listen-client-urls", self._url, "--advertise-client-urls", self._url),
            *("--listen-peer-urls", members, "--initial-advertise-peer-urls", members),
            *("--initial-cluster", f"member={members}", "--log-outputs", "stderr", "--unsafe-no-fsync"),
        ]
        self._log = folder / "etcd.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        program = Path(os.environ.get("ISOLET_PROGRAMS", ROOT / "target/programs")) / "isolet"
        authority, self._peer = folder / "authority", folder / "peer"
        for words in (["init"], ["issue", NODE, "--out", str(self._peer)]):
            command = [str(program), "cluster", *words, "--dir", str(authority)]
            subprocess.run(command, check=True, capture_output=True)
        wait_until("etcd is healthy", self._healthy)

    def _healthy(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()
        try:
            return httpx.get(f"{self._url}/health", trust_env=False).is_success
        except httpx.TransportError:
            return False

    def table(self) -> str:
        """The table `[cluster]` of the server's configuration."""
        return (
            f'[cluster]\netcd = ["{self._url}"]\nnode = "{NODE}"\n'
            f'advertise = "127.0.0.1:{free_port()}"\npeer_dir = "{self._peer}"\n'
        )

    def end(self) -> None:
        self._process.terminate()
        self._process.wait(WAIT_S)
