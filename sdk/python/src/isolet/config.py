"""Finding the server and its API key; retry delays."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from .errors import IsoletError, UsageError

#: A server's default address.
_LISTEN = "127.0.0.1:7300"
#: A server's default data directory.
_DATA_DIR = "/var/lib/isolet"
#: Delay before the first retry, in seconds; doubles with each further one.
_FIRST_WAIT = 0.1
#: Longest delay between retries, in seconds.
_LONGEST_WAIT = 5.0
#: Error codes of passing conditions, after which a repeatable request is sent again.
RETRYABLE_CODES = frozenset(
    {
        "stopping",
        "agent_lost",
        "sandbox_unreachable",
        "node_unreachable",
        "owner_moved",
        "fleet_unavailable",
        "deadline_exceeded",
        "unknown",
    }
)


class Key:
    """An API key. Never shown in logs, tracebacks or ``repr``."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def header(self) -> dict[str, str]:
        """HTTP header that authenticates a request."""
        return {"authorization": f"Bearer {self._text}"}

    def __repr__(self) -> str:
        return "Key(…)"


def resolve_url(url: str | None, env: Mapping[str, str] = os.environ) -> str:
    """Find the server's address: ``url``, else the environment.

    Returns:
        the address without a trailing slash.

    Raises:
        UsageError: ``bad_url``.
    """
    text = url or env.get("ISOLET_URL") or f"http://{env.get('ISOLET_LISTEN') or _LISTEN}"
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise UsageError(f"the server's address must look like http://{_LISTEN}", code="bad_url")
    if parts.username is not None:
        raise UsageError("the address must not contain credentials; pass the key as api_key", code="bad_url")
    return text.rstrip("/")


def resolve_key(api_key: str | None, env: Mapping[str, str] = os.environ) -> Key:
    """Find the API key: ``api_key``, else ``ISOLET_API_KEY``, else the key file of a local server.

    Raises:
        IsoletError: ``no_key``.
    """
    text = api_key if api_key is not None else env.get("ISOLET_API_KEY")
    if not text and api_key is None:
        file = Path(env.get("ISOLET_DATA_DIR") or _DATA_DIR) / "key"
        try:
            text = file.read_text().strip()
        except OSError as error:
            raise IsoletError(
                f"no API key found, and {file} cannot be read",
                code="no_key",
                hint="pass api_key, or set ISOLET_API_KEY or ISOLET_DATA_DIR (the server's data directory)",
            ) from error
    if not text or not text.isascii() or not text.isprintable():
        raise UsageError("an API key must be printable ASCII and not empty", code="no_key")
    return Key(text)


def retry_delay_s(attempt: int, retry_after: str | None = None) -> float:
    """Delay in seconds before a retry, after ``attempt`` failed ones.

    The delay is drawn at random between half and all of the exponential backoff, so that clients do not all
    return to a restarted server at once.

    Args:
        attempt: number of failed attempts.
        retry_after: the server's ``Retry-After``; the delay is at least that, up to 5 s.
    """
    whole: float = min(_FIRST_WAIT * 2 ** min(attempt, 10), _LONGEST_WAIT)
    least = float(retry_after) if retry_after is not None and retry_after.isdecimal() else 0.0
    return max(whole * (0.5 + random.random() / 2), min(least, _LONGEST_WAIT))  # noqa: S311
