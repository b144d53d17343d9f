"""Runs the blocks of a page against a server of its own: `run_page.py PAGE`. Exits with 1 if one is wrong.

Start it in a network namespace of its own (`unshare --net`): it adds an address, and a server that provides
networks must be the only one there.
"""

from __future__ import annotations

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


def main() -> int:
    """Run the page that the command line names."""
    page = Path(sys.argv[1]).resolve()
    for command in ("link set lo up", f"addr add {ADDRESS}/32 dev lo"):
        subprocess.run(["ip", *command.split()], check=True)
    with tempfile.TemporaryDirectory(prefix="isolet-docs-") as folder:
        config = Path(folder) / "isolet.toml"
        config.write_text(CONFIG)
        api = ExampleApi()
        server = Server(ISOLET_CONFIG=str(config))
        try:
            os.environ.update(ISOLET_URL=server.url, ISOLET_API_KEY=KEY, KEY=KEY)
            os.environ["PATH"] = f"{server.program.parent}:{os.environ['PATH']}"
            work = Path(folder) / "work"
            work.mkdir()
            wrong = pages.run(page, work)
        finally:
            server.end()
            api.close()
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
