"""Prints the trace of a real request, as docs/observability.md shows it. Needs root, and the programs of the tests."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import httpx

sys.path.append(str(Path(__file__).resolve().parents[2] / "sdk/python/tests"))

from receiver import Receiver, tree  # noqa: E402
from server import KEY, Server  # noqa: E402

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"

receiver = Receiver()
with tempfile.TemporaryDirectory() as folder:
    config = Path(folder, "isolet.toml")
    config.write_text(f'[telemetry]\notlp_endpoint = "{receiver.url}"\nsample_ratio = 0.0\n')
    server = Server(ISOLET_CONFIG=str(config))
headers = {"authorization": f"Bearer {KEY}", "traceparent": f"00-{TRACE}-{PARENT}-01"}
body = {"command": "sleep 0.1; echo $TRACEPARENT"}
answer = httpx.post(f"{server.url}/v1/sandboxes/demo/exec", headers=headers, json=body, timeout=60, trust_env=False)
spans = receiver.trace(TRACE, lambda found: any(span.parent == PARENT for span in found))
print(answer.json()["stdout"])
print(f"{'span':<40} {'start ms':>9} {'took ms':>9}")
print("\n".join(tree(spans, PARENT)))
server.end()
receiver.end()
