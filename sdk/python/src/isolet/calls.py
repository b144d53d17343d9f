"""What is asked of the server, as requests. Knows nothing of connections."""

from __future__ import annotations

import base64
import json
import os
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote, urlencode

from .models import Credential, CredentialInfo, Denied, FileAccess, NetworkRules
from .values import (
    AnyPath,
    Duration,
    Env,
    id_in_url,
    milliseconds,
    path_bytes,
    whole_seconds,
)

#: Names and values behind the ``?``.
Query = Sequence[tuple[str, str | bytes]]


@dataclass(frozen=True)
class Call:
    """One request."""

    method: str
    target: str  #: Path and query.
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    again: bool = False  #: May be sent again when its answer is lost: it is done once all the same.
    patient: bool = False  #: Its answer comes when a command ends.


def call(method: str, path: str, query: Query = (), **more: Any) -> Call:
    """A request without a body."""
    text = urlencode(query, quote_via=quote, safe="")
    return Call(method, f"{path}?{text}" if text else path, **more)


def json_call(method: str, path: str, body: Mapping[str, Any], **more: Any) -> Call:
    """A request with a body of JSON."""
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogatepass")
    headers = {"content-type": "application/json", **more.pop("headers", {})}
    return Call(method, path, body=text, headers=headers, **more)


def once(path: str, body: Mapping[str, Any]) -> Call:
    """Makes something: once, however often it is sent."""
    return anew(json_call("POST", path, body, again=True))


def anew(request: Call) -> Call:
    """A create that is another one than before: the same ``Idempotency-Key`` and body are answered with
    what was made the first time."""
    return replace(request, headers={**request.headers, "idempotency-key": uuid.uuid4().hex})


def said(**fields: Any) -> dict[str, Any]:
    """The fields that were told."""
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
    network: str | NetworkRules | None = None,
    network_profile: str | None = None,
    credentials: Iterable[Credential] = (),
) -> Call:
    """Makes a sandbox."""
    body = said(
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
        network=_network(network),
        network_profile=network_profile,
        credentials=[one.told() for one in credentials] or None,
    )
    return once("/v1/sandboxes", body)


def _network(network: str | NetworkRules | None) -> str | dict[str, list[str]] | None:
    return network.told() if isinstance(network, NetworkRules) else network


def network(path: str) -> Call:
    """Where a sandbox may connect to."""
    return call("GET", f"{path}/network", again=True)


def change_network(
    path: str,
    network: str | NetworkRules | None,
    network_profile: str | None,
    allow_add: Iterable[str | Denied],
    allow_remove: Iterable[str],
    deny_add: Iterable[str],
    deny_remove: Iterable[str],
    credentials_add: Iterable[Credential],
    credentials_remove: Iterable[str | CredentialInfo],
) -> Call:
    """Changes it: all of it, or nothing."""
    gone = [one.named() if isinstance(one, CredentialInfo) else {"host": one} for one in credentials_remove]
    opened = [one.told() if isinstance(one, Denied) else one for one in allow_add]
    body = said(
        network=_network(network),
        network_profile=network_profile,
        allow_add=opened or None,
        allow_remove=list(allow_remove) or None,
        deny_add=list(deny_add) or None,
        deny_remove=list(deny_remove) or None,
        credentials_add=[one.told() for one in credentials_add] or None,
        credentials_remove=gone or None,
    )
    return json_call("PATCH", f"{path}/network", body, again=True)


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
    body = said(
        memory_mib=memory_mib,
        cpu_millis=cpu_millis,
        pids=pids,
        env=None if env is None else dict(env),
        metadata=None if metadata is None else dict(metadata),
        sleep_after_s=None if sleep_after is None else whole_seconds(sleep_after),
        ttl_s=None if ttl is None else whole_seconds(ttl),
    )
    return json_call("PATCH", sandbox_path(sandbox), body, again=True)


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
    body = said(port=port, name=name, ttl_s=None if ttl is None else whole_seconds(ttl))
    return json_call("POST", f"{path}/links", body, again=True)


def unexpose(path: str, port: int) -> Call:
    """An end of all links to a port."""
    return call("DELETE", f"{path}/links/{int(port)}")


def port_target(path: str, port: int, target: str) -> str:
    """A path of the program on a port."""
    return f"{path}/ports/{int(port)}{'' if target.startswith('/') else '/'}{target}"


def dial(path: str, port: int) -> Call:
    """A TCP connection; to be sent as an upgrade."""
    return call("GET", f"{path}/tcp/{int(port)}", [("half", "1")])


def events(path: str, after: int | None) -> Call:
    """Follows what happens to sandboxes."""
    headers = {} if after is None else {"last-event-id": str(after)}
    return call("GET", path, headers={"accept": "text/event-stream", **headers}, again=True)


def usage() -> Call:
    """What the tenant's sandboxes have used."""
    return call("GET", "/v1/usage", again=True)


def audit(sandbox: str | None) -> Call:
    """What was done to the tenant's sandboxes, or to one."""
    return call("GET", "/v1/audit", [] if sandbox is None else [("sandbox", sandbox)], again=True)


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
    body = said(
        id=session,
        env=None if env is None else dict(env),
        cwd=_directory(cwd),
        command_timeout_ms=None if command_timeout is None else milliseconds(command_timeout),
        file_access=None if file_access is None else file_access.told(),
        metadata=own or None,
        ttl_s=None if ttl is None else whole_seconds(ttl),
    )
    return once(f"{sandbox_path(sandbox)}/sessions", body)


def _directory(cwd: AnyPath | None) -> str | None:
    return None if cwd is None else path_bytes(cwd).decode(errors="surrogateescape")


def create_tenant_session(
    *,
    persistent: bool,
    sandbox: str | None,
    file_access: FileAccess | None,
    metadata: Mapping[str, Any] | None,
    ttl: Duration | None,
) -> Call:
    """Makes a session across the tenant's sandboxes."""
    body = said(
        persistent=persistent,
        sandbox_id=sandbox,
        file_access=None if file_access is None else file_access.told(),
        metadata=None if metadata is None else dict(metadata),
        ttl=None if ttl is None else whole_seconds(ttl),
    )
    return once("/v1/sessions", body)


def delete_tenant_sessions(idle: bool, older_than: Duration | None) -> Call:
    """Ends those for which every filter holds."""
    query = [("status", "idle")] if idle else []
    if older_than is not None:
        query.append(("older_than", f"{whole_seconds(older_than)}s"))
    return call("DELETE", "/v1/sessions", query)


def tenant_session(id: str, method: str = "GET") -> Call:
    """One of them."""
    return call(method, f"/v1/sessions/{id_in_url(id)}", again=method == "GET")


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
    body = said(
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
    return json_call("POST", f"{path}/exec", body, headers=headers, patient=not stream)


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


# Code contexts.


def context_path(sandbox: str, context: str) -> str:
    """Where a code context is."""
    return f"{sandbox_path(sandbox)}/contexts/{id_in_url(context)}"


def create_context(
    sandbox: str,
    context: str | None,
    *,
    language: str | None,
    kernel: str | None,
    session: str | None,
    cwd: AnyPath | None,
    env: Env | None,
    timeout: Duration | None,
) -> Call:
    """Makes a code context."""
    body = said(
        id=context,
        language=language,
        kernel=kernel,
        session=session,
        cwd=None if cwd is None else os.fspath(cwd),
        env=None if env is None else dict(env),
        timeout_ms=None if timeout is None else milliseconds(timeout),
    )
    return json_call("POST", f"{sandbox_path(sandbox)}/contexts", body)


def run_code(at: str, code: str, *, stdin: str | None, timeout: Duration | None, stream: bool) -> Call:
    """Runs code in a context."""
    body = said(
        code=code,
        stdin=stdin,
        timeout_ms=None if timeout is None else milliseconds(timeout),
        cancel_on_close=True,
    )
    request = json_call("POST", f"{at}/run", body)
    headers = {**request.headers, **({"accept": "text/event-stream"} if stream else {})}
    return replace(request, headers=headers, patient=True)


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
    body = said(
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
    return once(f"{sandbox_path(sandbox)}/processes", body)


def process_post(path: str, what: str, body: Mapping[str, Any], patient: bool) -> Call:
    """Does something with a process."""
    return json_call("POST", f"{path}/{what}", body, patient=patient)


def process_stdin(path: str, data: str | bytes, eof: bool) -> Call:
    """Bytes for its standard input."""
    given = {"data_b64": base64.b64encode(data).decode()} if isinstance(data, bytes) else {"data": data}
    return json_call("POST", f"{path}/stdin", {**given, "eof": eof})


def process_follow(path: str, last: str | None) -> Call:
    """Its log as it grows; ``None``: from now on."""
    headers = {"accept": "text/event-stream; encoding=base64"}
    return call("GET", f"{path}/logs", [("since", "now" if last is None else last)], headers=headers)
