"""Conversion of arguments for the server: durations, paths and variables."""

from __future__ import annotations

import base64
import math
import os
import re
from collections.abc import Mapping
from datetime import timedelta
from urllib.parse import quote as _percent

from .errors import UsageError

#: Seconds, a ``timedelta``, or text: ``"90s"``, ``"10m"``, ``"1h"``, ``"2d"``.
Duration = float | timedelta | str
#: A path in a sandbox: text, bytes if it is not UTF-8, or a ``PurePosixPath``.
AnyPath = str | bytes | os.PathLike[str]
#: Environment variables; ``None`` unsets one.
Env = Mapping[str, str | None]

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def seconds(value: Duration) -> float:
    """Convert a duration to seconds.

    Raises:
        UsageError: ``bad_duration``.
    """
    if isinstance(value, timedelta):
        number = value.total_seconds()
    elif isinstance(value, str):
        match = re.fullmatch(r"(\d{1,12})([smhd])", value)
        number = int(match[1]) * _UNITS[match[2]] if match else -1
    else:
        number = float(value)
    if not math.isfinite(number) or number < 0:
        raise UsageError(f'{value!r} is not a duration such as 600 or "10m"', code="bad_duration")
    return number


def whole_seconds(value: Duration) -> int:
    """Convert a duration to whole seconds, rounded up, so that only 0 becomes 0."""
    return math.ceil(seconds(value))


def milliseconds(value: Duration) -> int:
    """Convert a duration to whole milliseconds, rounded up."""
    return math.ceil(seconds(value) * 1000)


def path_bytes(path: AnyPath) -> bytes:
    """Convert a path to bytes."""
    if isinstance(path, bytes):
        return path
    return os.fspath(path).encode(errors="surrogateescape")


def quote_path(path: AnyPath) -> str:
    """Percent-encode a path for a URL. ``.`` and ``..`` are encoded too, so that no HTTP library resolves
    them.
    """
    parts = [_part(part) for part in path_bytes(path).split(b"/")]
    text = "/".join(parts)
    return "%2F" + text[1:] if text.startswith("/") else text


def quote_id(name: str) -> str:
    """Percent-encode an id for a URL."""
    return _part(name.encode(errors="surrogateescape"))


def _part(part: bytes) -> str:
    return part.replace(b".", b"%2E").decode() if part in (b".", b"..") else _percent(part, safe="")


def path_field(name: str, path: AnyPath) -> dict[str, str]:
    """Convert a path to a JSON field: text, or base64 if it is not UTF-8."""
    raw = path_bytes(path)
    try:
        return {name: raw.decode()}
    except UnicodeDecodeError:
        return {f"{name}_b64": base64.b64encode(raw).decode()}


def shell_quote(text: str) -> str:
    """Quote text as one word of a shell command."""
    return "'" + text.replace("'", "'\\''") + "'"


def export_commands(variables: Env) -> str:
    """Build shell commands that set variables; ``None`` unsets one.

    Raises:
        UsageError: ``bad_name``.
    """
    lines = []
    for name, value in variables.items():
        if not _NAME.fullmatch(name):
            raise UsageError(f"{name!r} is not a valid variable name", code="bad_name")
        lines.append(f"unset {name}" if value is None else f"export {name}={shell_quote(value)}")
    return "\n".join(lines) or ":"
