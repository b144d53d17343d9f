"""HTTP requests as data: builds them, opens no connection."""

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

from .models import FileAccess
from .network_models import Credential, CredentialInfo, Denied, NetworkRules
from .values import (
    AnyPath,
    Duration,
    Env,
    milliseconds,
    path_bytes,
    quote_id,
    whole_seconds,
)

#: Query parameters, in order.
Query = Sequence[tuple[str, str | bytes]]


@dataclass(frozen=True)
class Call:
    """One HTTP request."""

    method: str
    target: str  #: Path and query string.
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    repeatable: bool = False  #: May be resent after a lost response without a second effect.
    waits_for_command: bool = False  #: The response arrives when the command ends: no read timeout.


def call(method: str, path: str, query: Query = (), **more: Any) -> Call:
    """Build a request without a body."""
    text = urlencode(query, quote_via=quote, safe="")
    return Call(method, f"{path}?{text}" if text else path, **more)


def json_call(method: str, path: str, body: Mapping[str, Any], **more: Any) -> Call:
    """Build a request with a JSON body."""
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogatepass")
    headers = {"content-type": "application/json", **more.pop("headers", {})}
    return Call(method, path, body=text, headers=headers, **more)


def create_call(path: str, body: Mapping[str, Any]) -> Call:
    """Build a create request with an idempotency key: resent requests create one object."""
    return with_new_idempotency_key(json_call("POST", path, body, repeatable=True))


def with_new_idempotency_key(request: Call) -> Call:
    """Copy a create request with a new ``Idempotency-Key``. The server answers a repeated key and body with
    the object of the first request, even when that object was deleted since.
    """
    return replace(request, headers={**request.headers, "idempotency-key": uuid.uuid4().hex})


def without_none(**fields: Any) -> dict[str, Any]:
    """Keep only the fields that have a value."""
    return {name: value for name, value in fields.items() if value is not None}


# Sandboxes.


def sandbox_path(sandbox: str) -> str:
    """URL path of a sandbox."""
    return f"/v1/sandboxes/{quote_id(sandbox)}"


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
    auto_resume: bool | None = None,
    sleep_after: Duration | None = None,
    ttl: Duration | None = None,
    network: str | NetworkRules | None = None,
    network_profile: str | None = None,
    credentials: Iterable[Credential] = (),
    snapshot: str | None = None,
    snapshot_every: Duration | None = None,
    keep: int | None = None,
    snapshot_on_destroy: bool | None = None,
    region: str | None = None,
    labels: Mapping[str, str] | None = None,
) -> Call:
    """Create a sandbox."""
    body = without_none(
        id=sandbox,
        snapshot=snapshot,
        image=image,
        memory_mib=memory_mib,
        cpu_millis=cpu_millis,
        pids=pids,
        disk_mib=disk_mib,
        env=None if env is None else dict(env),
        metadata=None if metadata is None else dict(metadata),
        persistent=persistent,
        auto_resume=auto_resume,
        sleep_after_s=None if sleep_after is None else whole_seconds(sleep_after),
        ttl_s=None if ttl is None else whole_seconds(ttl),
        network=_network(network),
        network_profile=network_profile,
        credentials=[one.to_json() for one in credentials] or None,
        snapshot_every_s=None if snapshot_every is None else whole_seconds(snapshot_every),
        keep=keep,
        snapshot_on_destroy=snapshot_on_destroy,
        region=region,
        labels=None if labels is None else dict(labels),
    )
    return create_call("/v1/sandboxes", body)


def create_snapshot(
    path: str, name: str | None, metadata: Mapping[str, Any] | None, ttl: Duration | None
) -> Call:
    """Take a snapshot of a sandbox."""
    body = without_none(
        name=name,
        metadata=None if metadata is None else dict(metadata),
        ttl_s=None if ttl is None else whole_seconds(ttl),
    )
    return create_call(f"{path}/snapshots", body)


def snapshot_path(snapshot: str) -> str:
    """The path of a snapshot."""
    return f"/v1/snapshots/{quote_id(snapshot)}"


def snapshot_diff_path(first: str, second: str) -> str:
    """The path of the comparison of two snapshots."""
    return f"{snapshot_path(first)}/diff/{quote_id(second)}"


def push_snapshot(snapshot: str) -> Call:
    """Copy a snapshot to the store."""
    path = f"{snapshot_path(snapshot)}/push"
    return call("POST", path, repeatable=True, waits_for_command=True)


def pull_snapshot(snapshot: str, name: str | None) -> Call:
    """Copy a snapshot from the store to the server."""
    path = f"{stored_snapshot_path(snapshot)}/pull"
    return json_call("POST", path, without_none(name=name), repeatable=True, waits_for_command=True)


def stored_snapshot_path(snapshot: str) -> str:
    """The path of a snapshot in the store."""
    return f"/v1/store/snapshots/{quote_id(snapshot)}"


def image_path(name: str) -> str:
    """The path of an image, whose slashes stay."""
    return f"/v1/images/{quote(name, safe='/')}"


def key_path(id: str) -> str:
    """URL path of an API key."""
    return f"/v1/keys/{quote_id(id)}"


def create_key(label: str | None, read_only: bool, ttl: Duration | None) -> Call:
    """Create an API key."""
    body = without_none(label=label, read_only=read_only, ttl_s=None if ttl is None else whole_seconds(ttl))
    return json_call("POST", "/v1/keys", body)


def webhook_path(id: str) -> str:
    """URL path of a webhook."""
    return f"/v1/webhooks/{quote_id(id)}"


def create_webhook(url: str, events: Iterable[str] | None, sandbox: str | None, label: str | None) -> Call:
    """Create a webhook."""
    patterns = None if events is None else list(events)
    return create_call("/v1/webhooks", without_none(url=url, events=patterns, sandbox=sandbox, label=label))


def update_webhook(id: str, url: str | None, events: Iterable[str] | None, enabled: bool | None) -> Call:
    """Change a webhook."""
    patterns = None if events is None else list(events)
    return json_call("PATCH", webhook_path(id), without_none(url=url, events=patterns, enabled=enabled))


def node_path(name: str) -> str:
    """URL path of a node."""
    return f"/v1/nodes/{quote_id(name)}"


def drain(name: str, timeout: Duration | None) -> Call:
    """Start to drain a node."""
    body = without_none(timeout_s=None if timeout is None else whole_seconds(timeout))
    return json_call("POST", f"{node_path(name)}/drain", body)


def move(path: str, node: str | None, region: str | None) -> Call:
    """Move a sandbox to another node."""
    body = without_none(node=node, region=region)
    return json_call("POST", f"{path}/move", body, waits_for_command=True)


def _network(network: str | NetworkRules | None) -> str | dict[str, list[str]] | None:
    return network.to_json() if isinstance(network, NetworkRules) else network


def network(path: str) -> Call:
    """Read the network rules of a sandbox."""
    return call("GET", f"{path}/network", repeatable=True)


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
    """Change network rules and credentials atomically."""
    removed = [
        one.selector() if isinstance(one, CredentialInfo) else {"host": one} for one in credentials_remove
    ]
    allowed = [one.to_json() if isinstance(one, Denied) else one for one in allow_add]
    body = without_none(
        network=_network(network),
        network_profile=network_profile,
        allow_add=allowed or None,
        allow_remove=list(allow_remove) or None,
        deny_add=list(deny_add) or None,
        deny_remove=list(deny_remove) or None,
        credentials_add=[one.to_json() for one in credentials_add] or None,
        credentials_remove=removed or None,
    )
    return json_call("PATCH", f"{path}/network", body, repeatable=True)


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
    auto_resume: bool | None = None,
    snapshot_every: Duration | None = None,
    keep: int | None = None,
    snapshot_on_destroy: bool | None = None,
) -> Call:
    """Change a sandbox's limits, environment or metadata atomically."""
    body = without_none(
        memory_mib=memory_mib,
        cpu_millis=cpu_millis,
        pids=pids,
        env=None if env is None else dict(env),
        metadata=None if metadata is None else dict(metadata),
        sleep_after_s=None if sleep_after is None else whole_seconds(sleep_after),
        ttl_s=None if ttl is None else whole_seconds(ttl),
        auto_resume=auto_resume,
        snapshot_every_s=None if snapshot_every is None else whole_seconds(snapshot_every),
        keep=keep,
        snapshot_on_destroy=snapshot_on_destroy,
    )
    return json_call("PATCH", sandbox_path(sandbox), body, repeatable=True)


def page(path: str, limit: int) -> Call:
    """Request the first page of a list."""
    return call("GET", path, [("limit", str(limit))], repeatable=True)


def next_page(link: str | None) -> Call | None:
    """Request the page that a ``Link`` response header names. Addresses of other hosts are ignored."""
    match = re.fullmatch(r'<(/[^/>][^>]*)>; rel="next"', link or "")
    return call("GET", match[1], repeatable=True) if match else None


# Ports.


def ports(path: str) -> Call:
    """List listening ports."""
    return call("GET", f"{path}/ports", repeatable=True)


def update_session(
    path: str, env: Env | None, command_timeout: Duration | None, metadata: Mapping[str, Any] | None
) -> Call:
    """Change a session. Repeating it gives the same session."""
    timeout_ms = None if command_timeout is None else milliseconds(command_timeout)
    body = without_none(
        env=None if env is None else dict(env), command_timeout_ms=timeout_ms, metadata=metadata
    )
    return json_call("PATCH", path, body, repeatable=True)


def sleep(path: str, force: bool) -> Call:
    """Put a sandbox to sleep."""
    return call("POST", f"{path}/sleep", [("force", "1")] if force else [])


def links(path: str) -> Call:
    """List the ports that have links."""
    return call("GET", f"{path}/links", repeatable=True)


def expose(path: str, port: int, name: str | None, ttl: Duration | None, token: str | None = None) -> Call:
    """Create a signed link to a port. Resending creates a second, equally valid link."""
    ttl_s = None if ttl is None else whole_seconds(ttl)
    body = without_none(port=port, name=name, ttl_s=ttl_s, token=token)
    return json_call("POST", f"{path}/links", body, repeatable=True)


def unexpose(path: str, port: int) -> Call:
    """Revoke all links to a port."""
    return call("DELETE", f"{path}/links/{int(port)}")


def port_target(path: str, port: int, target: str) -> str:
    """URL path that proxies to a program's port."""
    return f"{path}/ports/{int(port)}{'' if target.startswith('/') else '/'}{target}"


def dial(path: str, port: int) -> Call:
    """Open a TCP connection to a port; must be sent as a WebSocket upgrade."""
    return call("GET", f"{path}/tcp/{int(port)}", [("half", "1")])


def events(path: str, after: int | None) -> Call:
    """Subscribe to sandbox events."""
    headers = {} if after is None else {"last-event-id": str(after)}
    return call("GET", path, headers={"accept": "text/event-stream", **headers}, repeatable=True)


def usage() -> Call:
    """Read the tenant's resource usage."""
    return call("GET", "/v1/usage", repeatable=True)


def audit(sandbox: str | None) -> Call:
    """Read the tenant's audit log, optionally of one sandbox."""
    return call("GET", "/v1/audit", [] if sandbox is None else [("sandbox", sandbox)], repeatable=True)


# Sessions and commands.


def session_path(sandbox: str, session: str) -> str:
    """URL path of a session."""
    return f"{sandbox_path(sandbox)}/sessions/{quote_id(session)}"


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
    """Create a session in a sandbox."""
    own = dict(metadata or {})
    if name is not None:
        own["name"] = name
    body = without_none(
        id=session,
        env=None if env is None else dict(env),
        cwd=_directory(cwd),
        command_timeout_ms=None if command_timeout is None else milliseconds(command_timeout),
        file_access=None if file_access is None else file_access.to_json(),
        metadata=own or None,
        ttl_s=None if ttl is None else whole_seconds(ttl),
    )
    return create_call(f"{sandbox_path(sandbox)}/sessions", body)


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
    """Create a session that is addressed by its id alone."""
    body = without_none(
        persistent=persistent,
        sandbox_id=sandbox,
        file_access=None if file_access is None else file_access.to_json(),
        metadata=None if metadata is None else dict(metadata),
        ttl=None if ttl is None else whole_seconds(ttl),
    )
    return create_call("/v1/sessions", body)


def delete_tenant_sessions(idle: bool, older_than: Duration | None) -> Call:
    """Delete the sessions that match every filter."""
    query = [("status", "idle")] if idle else []
    if older_than is not None:
        query.append(("older_than", f"{whole_seconds(older_than)}s"))
    return call("DELETE", "/v1/sessions", query)


def tenant_session(id: str, method: str = "GET") -> Call:
    """Read or delete a session that is addressed by its id alone."""
    return call(method, f"/v1/sessions/{quote_id(id)}", repeatable=method == "GET")


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
    """Run a command, in a session's shell or as a separate process."""
    body = without_none(
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
    return json_call("POST", f"{path}/exec", body, headers=headers, waits_for_command=not stream)


def shell(
    sandbox: str, session: str | None, resume: str | None, since: tuple[int, int, int] | None, watch: bool
) -> Call:
    """Attach to a shell; must be sent as a WebSocket upgrade."""
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
    """URL path of a code context."""
    return f"{sandbox_path(sandbox)}/contexts/{quote_id(context)}"


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
    structured: bool,
) -> Call:
    """Create a code context."""
    body = without_none(
        id=context,
        language=language,
        kernel=kernel,
        session=session,
        cwd=None if cwd is None else os.fspath(cwd),
        env=None if env is None else dict(env),
        timeout_ms=None if timeout is None else milliseconds(timeout),
        structured=structured or None,
    )
    return json_call("POST", f"{sandbox_path(sandbox)}/contexts", body)


def run_code(
    at: str, code: str, *, stdin: str | None, timeout: Duration | None, env: Env | None, stream: bool
) -> Call:
    """Run code in a context."""
    body = without_none(
        code=code,
        stdin=stdin,
        timeout_ms=None if timeout is None else milliseconds(timeout),
        env=None if env is None else dict(env),
        cancel_on_close=True,
    )
    request = json_call("POST", f"{at}/run", body)
    headers = {**request.headers, **({"accept": "text/event-stream"} if stream else {})}
    return replace(request, headers=headers, waits_for_command=True)


# Processes.


def process_path(sandbox: str, process: str) -> str:
    """URL path of a background process."""
    return f"{sandbox_path(sandbox)}/processes/{quote_id(process)}"


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
    """Start a background process."""
    body = without_none(
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
    return create_call(f"{sandbox_path(sandbox)}/processes", body)


def process_post(path: str, what: str, body: Mapping[str, Any], waits_for_command: bool) -> Call:
    """Send an action to a background process."""
    return json_call("POST", f"{path}/{what}", body, waits_for_command=waits_for_command)


def process_stdin(path: str, data: str | bytes, eof: bool) -> Call:
    """Write to a process's standard input."""
    given = {"data_b64": base64.b64encode(data).decode()} if isinstance(data, bytes) else {"data": data}
    return json_call("POST", f"{path}/stdin", {**given, "eof": eof})


def process_follow(path: str, position: str | None) -> Call:
    """Stream a process's log from a position; ``None`` starts with new output."""
    headers = {"accept": "text/event-stream; encoding=base64"}
    return call("GET", f"{path}/logs", [("since", "now" if position is None else position)], headers=headers)
