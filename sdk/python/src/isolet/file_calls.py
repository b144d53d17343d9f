"""What is asked of the server about files, as requests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .calls import Call, call, json_call
from .errors import UsageError
from .values import AnyPath, in_url, path_bytes, path_field


def _file(at: str, path: AnyPath) -> str:
    return f"{at}/files/{in_url(path)}"


def read_file(at: str, path: AnyPath, start: int = 0, length: int | None = None) -> Call:
    """Reads a file, or a part of it."""
    if start < 0 or (length is not None and length < 1):
        raise UsageError("a part begins at 0 or later and has at least one byte", code="bad_range")
    headers = {}
    if start > 0 or length is not None:
        headers["range"] = f"bytes={start}-{'' if length is None else start + length - 1}"
    return call("GET", _file(at, path), headers=headers, again=True)


def write_file(
    at: str, path: AnyPath, *, mode: int | None = None, append: bool = False, fsync: bool = False
) -> Call:
    """Writes a file; its body is the caller's to add."""
    query = []
    if mode is not None:
        query.append(("mode", f"{mode:04o}"))
    if append:
        query.append(("append", "1"))
    if fsync:
        query.append(("fsync", "1"))
    headers = {"content-type": "application/octet-stream"}
    return call("PUT", _file(at, path), query, headers=headers)


def whole(request: Call, body: bytes) -> Call:
    """With all of its body: written twice, a file is the same, unless it is added to."""
    return replace(request, body=body, again="append=1" not in request.target.partition("?")[2])


def delete_file(at: str, path: AnyPath, recursive: bool) -> Call:
    """Removes a file or a directory."""
    return call("DELETE", _file(at, path), [("recursive", "1")] if recursive else [])


def order(at: str, op: str, path: AnyPath, to: AnyPath | None = None, **fields: Any) -> Call:
    """Does one thing with a file."""
    body = {"op": op, **path_field("path", path), **fields}
    if to is not None:
        body |= path_field("to", to)
    return json_call("POST", f"{at}/files", body, again=op in ("stat", "exists", "mkdir", "chmod"))


def list_files(
    at: str, path: AnyPath, *, recursive: bool, hidden: bool, glob: str | None, limit: int
) -> Call:
    """The first page of what a directory holds."""
    query: list[tuple[str, str | bytes]] = [("path", path_bytes(path)), ("limit", str(limit))]
    query += [(name, "1") for name, told in (("recursive", recursive), ("hidden", hidden)) if told]
    if glob is not None:
        query.append(("glob", glob))
    return call("GET", f"{at}/files", query, again=True)


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
    """Lines that match."""
    query: list[tuple[str, str | bytes]] = [
        ("path", path_bytes(path)),
        ("search", pattern),
        ("limit", str(limit)),
    ]
    flags = {"literal": literal, "ignore_case": ignore_case, "hidden": hidden, "ignored": ignored}
    query += [(name, "1") for name, told in flags.items() if told]
    if context:
        query.append(("context", str(context)))
    if glob is not None:
        query.append(("glob", glob))
    return call("GET", f"{at}/files", query, again=True)


def watch(at: str, path: AnyPath, recursive: bool) -> Call:
    """What happens in a directory, from now on."""
    query: list[tuple[str, str | bytes]] = [("path", path_bytes(path)), ("watch", "1")]
    if recursive:
        query.append(("recursive", "1"))
    return call("GET", f"{at}/files", query, headers={"accept": "text/event-stream"}, again=True)


def read_archive(at: str, path: AnyPath, compress: bool) -> Call:
    """A directory as a tar archive."""
    query: list[tuple[str, str | bytes]] = [("path", path_bytes(path)), ("tar", "zstd" if compress else "1")]
    return call("GET", f"{at}/files", query, again=True)


def write_archive(at: str, path: AnyPath) -> Call:
    """Unpacks a tar archive; its body is the caller's to add."""
    headers = {"content-type": "application/octet-stream"}
    return call("PUT", _file(at, path), [("untar", "1")], headers=headers)
