"""HTTP requests for files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from .calls import Call, call, json_call
from .errors import UsageError
from .values import AnyPath, path_bytes, path_field, quote_path


def _file(at: str, path: AnyPath) -> str:
    return f"{at}/files/{quote_path(path)}"


def read_file(at: str, path: AnyPath, start: int = 0, length: int | None = None) -> Call:
    """Read a file or a byte range of it."""
    if start < 0 or (length is not None and length < 1):
        raise UsageError("start must be 0 or more, and length at least 1", code="bad_range")
    headers = {}
    if start > 0 or length is not None:
        headers["range"] = f"bytes={start}-{'' if length is None else start + length - 1}"
    return call("GET", _file(at, path), [("type", "file")], headers=headers, repeatable=True)


def write_file(
    at: str,
    path: AnyPath,
    *,
    mode: int | None = None,
    append: bool = False,
    fsync: bool = False,
    if_match: str | None = None,
) -> Call:
    """Write a file; the caller adds the body."""
    query = []
    if mode is not None:
        query.append(("mode", f"{mode:04o}"))
    if append:
        query.append(("append", "1"))
    if fsync:
        query.append(("fsync", "1"))
    headers = {"content-type": "application/octet-stream"}
    if if_match is not None:
        headers["if-match"] = if_match
    return call("PUT", _file(at, path), query, headers=headers)


def with_body(request: Call, body: bytes) -> Call:
    """Add a complete body. Such a write may be resent, unless it appends, or its first attempt may be what
    made the second one fail.
    """
    appends = "append=1" in request.target.partition("?")[2]
    return replace(request, body=body, repeatable=not appends and "if-match" not in request.headers)


def delete_file(at: str, path: AnyPath, recursive: bool) -> Call:
    """Delete a file or directory."""
    return call("DELETE", _file(at, path), [("recursive", "1")] if recursive else [])


def file_operation(at: str, op: str, path: AnyPath, to: AnyPath | None = None, **fields: Any) -> Call:
    """Run a file operation such as ``stat`` or ``move``."""
    body = {"op": op, **path_field("path", path), **fields}
    if to is not None:
        body |= path_field("to", to)
    return json_call("POST", f"{at}/files", body, repeatable=op in ("stat", "exists", "mkdir", "chmod"))


def list_files(
    at: str, path: AnyPath, *, recursive: bool, hidden: bool, glob: str | None, limit: int
) -> Call:
    """List the first page of a directory."""
    query: list[tuple[str, str | bytes]] = [("path", path_bytes(path)), ("limit", str(limit))]
    query += [(name, "1") for name, enabled in (("recursive", recursive), ("hidden", hidden)) if enabled]
    if glob is not None:
        query.append(("glob", glob))
    return call("GET", f"{at}/files", query, repeatable=True)


def search(
    at: str,
    path: AnyPath,
    pattern: str,
    *,
    literal: bool,
    ignore_case: bool,
    hidden: bool,
    ignored: bool,
    glob: str | None,
    context: int,
    limit: int,
) -> Call:
    """Search for matching lines."""
    query: list[tuple[str, str | bytes]] = [
        ("path", path_bytes(path)),
        ("search", pattern),
        ("limit", str(limit)),
    ]
    flags = {"literal": literal, "ignore_case": ignore_case, "hidden": hidden, "ignored": ignored}
    query += [(name, "1") for name, enabled in flags.items() if enabled]
    if context:
        query.append(("context", str(context)))
    if glob is not None:
        query.append(("glob", glob))
    return call("GET", f"{at}/files", query, repeatable=True)


def watch(at: str, path: AnyPath, recursive: bool, include: Sequence[str], exclude: Sequence[str]) -> Call:
    """Watch a directory for changes."""
    query: list[tuple[str, str | bytes]] = [("path", path_bytes(path)), ("watch", "1")]
    if recursive:
        query.append(("recursive", "1"))
    query += [("include", pattern) for pattern in include]
    query += [("exclude", pattern) for pattern in exclude]
    return call("GET", f"{at}/files", query, headers={"accept": "text/event-stream"}, repeatable=True)


def changes(
    at: str,
    path: AnyPath,
    since: str,
    recursive: bool,
    include: Sequence[str],
    exclude: Sequence[str],
    limit: int,
) -> Call:
    """Find out what changed in a directory since a version."""
    query: list[tuple[str, str | bytes]] = [
        ("path", path_bytes(path)),
        ("changes_since", since),
        ("limit", str(limit)),
    ]
    if recursive:
        query.append(("recursive", "1"))
    query += [("include", pattern) for pattern in include]
    query += [("exclude", pattern) for pattern in exclude]
    return call("GET", f"{at}/files", query, repeatable=True)


def read_archive(at: str, path: AnyPath, compress: bool) -> Call:
    """Download a directory as a tar archive."""
    query: list[tuple[str, str | bytes]] = [("path", path_bytes(path)), ("tar", "zstd" if compress else "1")]
    return call("GET", f"{at}/files", query, repeatable=True)


def write_archive(at: str, path: AnyPath) -> Call:
    """Upload and unpack a tar archive; the caller adds the body."""
    headers = {"content-type": "application/octet-stream"}
    return call("PUT", _file(at, path), [("untar", "1")], headers=headers)
