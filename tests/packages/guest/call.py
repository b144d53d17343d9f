"""Makes one call of the API: call.py METHOD PATH [BODY]. Prints the response; fails when it is an error."""

import sys
import urllib.error
import urllib.request
from pathlib import Path

URL = "http://127.0.0.1:7300"


def call(method: str, path: str, body: str | None = None) -> str:
    """Send a request with the server's first key."""
    key = Path("/var/lib/isolet/key").read_text().strip()
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    request = urllib.request.Request(URL + path, body and body.encode(), headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=300) as response:
            return response.read().decode()
    except urllib.error.HTTPError as error:
        sys.exit(f"{method} {path}: {error.code} {error.read().decode()}")


if __name__ == "__main__":
    print(call(*sys.argv[1:]))
