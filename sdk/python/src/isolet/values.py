"""Words of the caller, made fit for the server: durations, paths, variables."""

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
#: A name in a sandbox: text, bytes where it is no UTF-8, or a ``PurePosixPath``.
AnyPath = str | bytes | os.PathLike[str]
#: Variables; ``None`` unsets one.
Env = Mapping[str, str | None]

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def seconds(value: Duration) -> float:
    """A duration in seconds."""
    if isinstance(value, timedelta):
        number = value.total_seconds()
    elif isinstance(value, str):
        match = re.fullmatch(r"(\d{1,12})([smhd])", value)
        number = int(match[1]) * _UNITS[match[2]] if match else -1
    else:
        number = float(value)
    if not math.isfinite(number) or number < 0:
        raise UsageError(f'{value!r} is no duration like 600 or "10m"', code="bad_duration")
    return number


def whole_seconds(value: Duration) -> int:
    """A duration in whole seconds; a part of one counts as a whole one, so that only 0 is 0."""
    return math.ceil(seconds(value))


def milliseconds(value: Duration) -> int:
    """A duration in whole ms; a part of one counts as a whole one."""
    return math.ceil(seconds(value) * 1000)


def path_bytes(path: AnyPath) -> bytes:
    """The bytes of a path."""
    if isinstance(path, bytes):
        return path
    return os.fspath(path).encode(errors="surrogateescape")


def in_url(path: AnyPath) -> str:
    """A path as it stands in an address: ``.`` and ``..`` too are names of the sandbox's own."""
    parts = [_part(part) for part in path_bytes(path).split(b"/")]
    text = "/".join(parts)
    return "%2F" + text[1:] if text.startswith("/") else text


def id_in_url(name: str) -> str:
    """An id as it stands in an address."""
    return _part(name.encode(errors="surrogateescape"))


def _part(part: bytes) -> str:
    return part.replace(b".", b"%2E").decode() if part in (b".", b"..") else _percent(part, safe="")


def path_field(name: str, path: AnyPath) -> dict[str, str]:
    """A path as a field of a JSON body: text, or base64 where it is no UTF-8."""
    raw = path_bytes(path)
    try:
        return {name: raw.decode()}
    except UnicodeDecodeError:
        return {f"{name}_b64": base64.b64encode(raw).decode()}


def word(text: str) -> str:
    """A text as one word of a shell."""
    return "'" + text.replace("'", "'\\''") + "'"


def exports(variables: Env) -> str:
    """A command that sets variables; ``None`` unsets."""
    lines = []
    for name, value in variables.items():
        if not _NAME.fullmatch(name):
            raise UsageError(f"{name!r} cannot be a variable's name", code="bad_name")
        lines.append(f"unset {name}" if value is None else f"export {name}={word(value)}")
    return "\n".join(lines) or ":"
