"""Where a server is, the key that opens it, and how patient a client is."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from .errors import IsoletError, UsageError

#: Where a server listens unless told.
_LISTEN = "127.0.0.1:7300"
#: Where a server on this machine keeps its data unless told.
_DATA_DIR = "/var/lib/isolet"
#: Seconds before the first of several tries; twice as long before each further one.
_FIRST_WAIT = 0.1
#: The longest wait between tries, in seconds.
_LONGEST_WAIT = 5.0
#: Refusals that pass by themselves.
PASSING = frozenset({"stopping", "agent_lost", "sandbox_unreachable", "too_late", "unknown"})


class Key:
    """An API key, which no log, traceback or ``repr`` shows."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def header(self) -> dict[str, str]:
        """What opens the server."""
        return {"authorization": f"Bearer {self._text}"}

    def __repr__(self) -> str:
        return "Key(…)"


def find_url(url: str | None, env: Mapping[str, str] = os.environ) -> str:
    """The server's address, without a slash at its end."""
    text = url or env.get("ISOLET_URL") or f"http://{env.get('ISOLET_LISTEN') or _LISTEN}"
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise UsageError(f"a server's address is like http://{_LISTEN}", code="bad_url")
    if parts.username is not None:
        raise UsageError("an address holds no key: give it as api_key", code="bad_url")
    return text.rstrip("/")


def find_key(api_key: str | None, env: Mapping[str, str] = os.environ) -> Key:
    """The key: the one that is told, else ``ISOLET_API_KEY``, else the key file of a server here."""
    text = api_key if api_key is not None else env.get("ISOLET_API_KEY")
    if not text and api_key is None:
        file = Path(env.get("ISOLET_DATA_DIR") or _DATA_DIR) / "key"
        try:
            text = file.read_text().strip()
        except OSError as error:
            raise IsoletError(
                f"no API key, and {file} cannot be read",
                code="no_key",
                hint="give api_key, set ISOLET_API_KEY, or ISOLET_DATA_DIR to the server's data directory",
            ) from error
    if not text or not text.isascii() or not text.isprintable():
        raise UsageError("an API key is printable ASCII, and not empty", code="no_key")
    return Key(text)


def wait_before(attempt: int, asked: str | None = None) -> float:
    """Seconds before the try behind ``attempt`` failed ones, at least what the server asked for.

    Between half and all of the whole, by chance: a server that comes back is not to be asked by all
    of its clients at once.
    """
    whole: float = min(_FIRST_WAIT * 2 ** min(attempt, 10), _LONGEST_WAIT)
    least = float(asked) if asked is not None and asked.isdecimal() else 0.0
    return max(whole * (0.5 + random.random() / 2), min(least, _LONGEST_WAIT))  # noqa: S311
