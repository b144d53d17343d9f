"""What is asked of the server, as requests. Knows nothing of connections."""

from __future__ import annotations

import base64
import json
import os
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote, urlencode

from .errors import UsageError
from .models import FileAccess
from .values import (
    AnyPath,
    Duration,
    Env,
    id_in_url,
    in_url,
    milliseconds,
    path_bytes,
    path_field,
    whole_seconds,
)

_Query = Sequence[tuple[str, str | bytes]]


@dataclass(frozen=True)
class Call:
    """One request."""

    method: str
    target: str  #: Path and query.
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    again: bool = False  #: May be sent again when its answer is lost: it is done once all the same.
    patient: bool = False  #: Its answer comes when a command ends.


def call(method: str, path: str, query: _Query = (), **more: Any) -> Call:
    """A request without a body."""
    text = urlencode(query, quote_via=quote, safe="")
    return Call(method, f"{path}?{text}" if text else path, **more)


def _json(method: str, path: str, body: Mapping[str, Any], **more: Any) -> Call:
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogatepass")
    headers = {"content-type": "application/json", **more.pop("headers", {})}
    return Call(method, path, body=text, headers=headers, **more)


def _once(path: str, body: Mapping[str, Any]) -> Call:
    return anew(_json("POST", path, body, again=True))


def anew(request: Call) -> Call:
    """A create that is another one than before: the same ``Idempotency-Key`` and body are answered with
    what was made the first time."""
    return replace(request, headers={**request.headers, "idempotency-key": uuid.uuid4().hex})


def _said(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


# Sandboxes.


def sandbox_path(sandbox: str) -> str:
    """Where a sandbox is."""
    return f"/v1/sandboxes/{id_in_url(sandbox)}"


def create_sandbox(
    sandbox: str | None = None,
    *,
    image: str | None = None,
    memory_mib: int | None = None,
    cpu_millis: int | None = None,
    pids: int | None = None,
    disk_mib: int | None = None,
    env: Mapping[str, str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    persistent: bool | None = None,
    sleep_after: Duration | None = None,
    ttl: Duration | None = None,
) -> Call:
    """Makes a sandbox."""
    body = _said(
        id=sandbox,
        image=image,
        memory_mib=memory_mib,
        cpu_millis=cpu_millis,
        pids=pids,
        disk_mib=disk_mib,
        env=None if env is None else dict(env),
        metadata=None if metadata is None else dict(metadata),
        persistent=persistent,
        sleep_after_s=None if sleep_after is None else whole_seconds(sleep_after),
        ttl_s=None if ttl is None else whole_seconds(ttl),
    )
    return _once("/v1/sandboxes", body)


def change_sandbox(
    sandbox: str,
    *,
    memory_mib: int | None = None,
    cpu_millis: int | None = None,
    pids: int | None = None,
    env: Env | None = None,
    metadata: Mapping[str, Any] | None = None,
    sleep_after: Duration | None = None,
    ttl: Duration | None = None,
) -> Call:
    """Changes a sandbox: all of it, or nothing."""
    body = _said(
        memory_mib=memory_mib,
        cpu_millis=cpu_millis,
        pids=pids,
        env=None if env is None else dict(env),
        metadata=None if metadata is None else dict(metadata),
        sleep_after_s=None if sleep_after is None else whole_seconds(sleep_after),
        ttl_s=None if ttl is None else whole_seconds(ttl),
    )
    return _json("PATCH", sandbox_path(sandbox), body, again=True)


def page(path: str, limit: int) -> Call:
    """The first page of a list."""
    return call("GET", path, [("limit", str(limit))], again=True)


def next_page(link: str | None) -> Call | None:
    """The page that a ``Link`` header names; only one of the same server is followed."""
    match = re.fullmatch(r'<(/[^/>][^>]*)>; rel="next"', link or "")
    return call("GET", match[1], again=True) if match else None


# Ports.


def ports(path: str) -> Call:
    """Who listens."""
    return call("GET", f"{path}/ports", again=True)


def links(path: str) -> Call:
    """The ports that links lead to."""
    return call("GET", f"{path}/links", again=True)


def expose(path: str, port: int, name: str | None, ttl: Duration | None) -> Call:
    """A link to a port. Another one made by a repetition does no harm."""
    body = _said(port=port, name=name, ttl_s=None if ttl is None else whole_seconds(ttl))
    return _json("POST", f"{path}/links", body, again=True)


def unexpose(path: str, port: int) -> Call:
    """An end of all links to a port."""
    return call("DELETE", f"{path}/links/{int(port)}")


def events(path: str, after: int | None) -> Call:
    """Follows what happens to sandboxes."""
    headers = {} if after is None else {"last-event-id": str(after)}
    return call("GET", path, headers={"accept": "text/event-stream", **headers}, again=True)


# Sessions and commands.


def session_path(sandbox: str, session: str) -> str:
    """Where a session is."""
    return f"{sandbox_path(sandbox)}/sessions/{id_in_url(session)}"


def create_session(
    sandbox: str,
    session: str | None = None,
    *,
    name: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: AnyPath | None = None,
    command_timeout: Duration | None = None,
    file_access: FileAccess | None = None,
    metadata: Mapping[str, Any] | None = None,
    ttl: Duration | None = None,
) -> Call:
    """Makes a session."""
    own = dict(metadata or {})
    if name is not None:
        own["name"] = name
    body = _said(
        id=session,
        env=None if env is None else dict(env),
        cwd=_directory(cwd),
        command_timeout_ms=None if command_timeout is None else milliseconds(command_timeout),
        file_access=None if file_access is None else file_access.told(),
        metadata=own or None,
        ttl_s=None if ttl is None else whole_seconds(ttl),
    )
    return _once(f"{sandbox_path(sandbox)}/sessions", body)


def _directory(cwd: AnyPath | None) -> str | None:
    return None if cwd is None else path_bytes(cwd).decode(errors="surrogateescape")


def exec_call(
    path: str,
    command: str | Sequence[str],
    *,
    session: str | None = None,
    cwd: AnyPath | None = None,
    env: Env | None = None,
    stdin: str | bytes | None = None,
    timeout: Duration | None = None,
    max_output_bytes: int | None = None,
    merge: bool = False,
    keep_running: bool = False,
    in_shell: bool = False,
    stream: bool = False,
) -> Call:
    """Runs a command: in a session's shell, or by itself."""
    body = _said(
        session=session,
        cwd=_directory(cwd),
        env=None if env is None else dict(env),
        timeout_ms=None if timeout is None else milliseconds(timeout),
        max_output_bytes=None if stream else max_output_bytes,
    )
    body["command" if isinstance(command, str) else "argv"] = (
        command if isinstance(command, str) else list(command)
    )
    if isinstance(stdin, bytes):
        body["stdin_b64"] = base64.b64encode(stdin).decode()
    elif stdin is not None:
        body["stdin"] = stdin
    if in_shell:
        body["cancel_on_close"] = not keep_running
        if merge:
            body["merge"] = True
    headers = {"accept": "text/event-stream; encoding=base64"} if stream else {}
    return _json("POST", f"{path}/exec", body, headers=headers, patient=not stream)


def shell(
    sandbox: str, session: str | None, resume: str | None, since: tuple[int, int, int] | None, watch: bool
) -> Call:
    """Attaches to a shell; to be sent as an upgrade."""
    query = [("frames", "binary")]
    if session is not None:
        query.append(("session", session))
    if resume is not None:
        query.append(("resume", resume))
    if since is not None:
        query.append(("since", ",".join(map(str, since))))
    if watch:
        query.append(("watch", "1"))
    return call("GET", f"{sandbox_path(sandbox)}/shell", query)


# Files.


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
    return _json("POST", f"{at}/files", body, again=op in ("stat", "exists", "mkdir", "chmod"))


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


def context_path(sandbox: str, context: str) -> str:
    """Where a code context is."""
    return f"{sandbox_path(sandbox)}/contexts/{id_in_url(context)}"


def create_context(
    sandbox: str,
    context: str | None,
    *,
    language: str | None,
    session: str | None,
    cwd: AnyPath | None,
    env: Env | None,
    timeout: Duration | None,
) -> Call:
    """Makes a code context."""
    body = _said(
        id=context,
        language=language,
        session=session,
        cwd=None if cwd is None else os.fspath(cwd),
        env=None if env is None else dict(env),
        timeout_ms=None if timeout is None else milliseconds(timeout),
    )
    return _json("POST", f"{sandbox_path(sandbox)}/contexts", body)


def run_code(at: str, code: str, *, stdin: str | None, timeout: Duration | None, stream: bool) -> Call:
    """Runs code in a context."""
    body = _said(
        code=code,
        stdin=stdin,
        timeout_ms=None if timeout is None else milliseconds(timeout),
        cancel_on_close=True,
    )
    request = _json("POST", f"{at}/run", body)
    headers = {**request.headers, **({"accept": "text/event-stream"} if stream else {})}
    return replace(request, headers=headers, patient=True)


def read_archive(at: str, path: AnyPath, compress: bool) -> Call:
    """A directory as a tar archive."""
    query: list[tuple[str, str | bytes]] = [("path", path_bytes(path)), ("tar", "zstd" if compress else "1")]
    return call("GET", f"{at}/files", query, again=True)


def write_archive(at: str, path: AnyPath) -> Call:
    """Unpacks a tar archive; its body is the caller's to add."""
    headers = {"content-type": "application/octet-stream"}
    return call("PUT", _file(at, path), [("untar", "1")], headers=headers)


# Processes.


def process_path(sandbox: str, process: str) -> str:
    """Where a process is."""
    return f"{sandbox_path(sandbox)}/processes/{id_in_url(process)}"


def start_process(
    sandbox: str,
    command: str | Sequence[str],
    *,
    id: str | None,
    session: str | None,
    cwd: AnyPath | None,
    env: Env | None,
    stdin: bool,
    timeout: Duration | None,
) -> Call:
    """Starts a process."""
    body = _said(
        id=id,
        session=session,
        cwd=_directory(cwd),
        env=None if env is None else dict(env),
        stdin=stdin or None,
        timeout_ms=None if timeout is None else milliseconds(timeout),
    )
    body["command" if isinstance(command, str) else "argv"] = (
        command if isinstance(command, str) else list(command)
    )
    return _once(f"{sandbox_path(sandbox)}/processes", body)


def process_post(path: str, what: str, body: Mapping[str, Any], patient: bool) -> Call:
    """Does something with a process."""
    return _json("POST", f"{path}/{what}", body, patient=patient)


def process_stdin(path: str, data: str | bytes, eof: bool) -> Call:
    """Bytes for its standard input."""
    given = {"data_b64": base64.b64encode(data).decode()} if isinstance(data, bytes) else {"data": data}
    return _json("POST", f"{path}/stdin", {**given, "eof": eof})


def process_follow(path: str, last: str | None) -> Call:
    """Its log as it grows; ``None``: from now on."""
    headers = {"accept": "text/event-stream; encoding=base64"}
    return call("GET", f"{path}/logs", [("since", "now" if last is None else last)], headers=headers)
