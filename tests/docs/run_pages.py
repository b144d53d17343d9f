"""Runs the blocks of pages against a server of their own: `run_pages.py PAGE …`. Writes what is wrong as JSON, by page.

Start it in a network namespace of its own (`unshare --net`): it adds an address, and a server that provides
networks must be the only one there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "sdk/python/src"), str(ROOT / "sdk/python/tests")]

import pages  # noqa: E402
from example_api import ADDRESS, RESOLVER, ExampleApi  # noqa: E402
from server import KEY, Server  # noqa: E402

CONFIG = f"""\
[network]
resolvers = ["{RESOLVER}"]
opened = ["{ADDRESS}/32"]
"""


def main() -> None:
    """Run the pages that the command line names."""
    for command in ("link set lo up", f"addr add {ADDRESS}/32 dev lo"):
        subprocess.run(["ip", *command.split()], check=True)
    wrong = {}
    with tempfile.TemporaryDirectory(prefix=f"isolet-docs-{os.getpid()}-") as folder:
        config = Path(folder) / "isolet.toml"
        config.write_text(CONFIG)
        api = ExampleApi()
        server = Server(ISOLET_CONFIG=str(config))
        try:
            os.environ.update(ISOLET_URL=server.url, ISOLET_API_KEY=KEY, KEY=KEY)
            os.environ["PATH"] = f"{server.program.parent}:{os.environ['PATH']}"
            for page in sys.argv[1:]:
                work = Path(folder) / Path(page).stem
                work.mkdir()
                wrong[page] = pages.run(Path(page), work)
        finally:
            os.chdir("/")
            server.end()
            api.close()
    print(json.dumps(wrong))


if __name__ == "__main__":
    main()
