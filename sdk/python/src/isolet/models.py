"""Data that the server returns: sandboxes, sessions, files and events. Times are in UTC."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

from .network_models import Denied, Traffic

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def time_from_ms(ms: float) -> datetime:
    """Convert milliseconds since 1970 to a time."""
    return _EPOCH + timedelta(milliseconds=ms)


def optional_time(ms: float | None) -> datetime | None:
    """Convert milliseconds since 1970, if any, to a time."""
    return None if ms is None else time_from_ms(ms)


def _exact_bytes(body: Mapping[str, Any], name: str) -> bytes:
    b64 = body.get(f"{name}_b64")
    return base64.b64decode(b64) if b64 else str(body.get(name, "")).encode()


@dataclass(frozen=True)
class Usage:
    """Resource usage of a running sandbox."""

    cpu_ms: float  #: Processor time in milliseconds.
    memory_bytes: int  #: Current memory.
    memory_peak_bytes: int  #: Highest memory so far.
    pids: int  #: Current processes and threads.
    oom_kills: int  #: Processes killed by the kernel's OOM killer.
    uptime_ms: int  #: Milliseconds since creation.
    awake_ms: int  #: Milliseconds since creation, without sleep.
    disk_bytes: int | None  #: Size of its files; ``None`` without ``disk_mib``.
    network: Traffic | None = None  #: ``None`` if it never had network access.

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Usage:
        """Parse the server's JSON."""
        return cls(
            cpu_ms=body["cpu_ms"],
            memory_bytes=body["memory_bytes"],
            memory_peak_bytes=body["memory_peak_bytes"],
            pids=body["pids"],
            oom_kills=body["oom_kills"],
            uptime_ms=body["uptime_ms"],
            awake_ms=body["awake_ms"],
            disk_bytes=body.get("disk_bytes"),
            network=Traffic.from_json(body["network"]) if body.get("network") else None,
        )


@dataclass(frozen=True)
class SandboxInfo:
    """A sandbox's configuration and state.

    ``state`` is ``creating``, ``running``, ``paused``, ``sleeping``, ``unreachable``, ``failed`` or
    ``destroyed``.
    """

    id: str
    state: str
    cause: str | None  #: Reason of a failure.
    image: str  #: Image as requested.
    persistent: bool  #: Files and shell state survive sleep.
    memory_mib: int  #: Memory limit.
    cpu_millis: int  #: CPU limit in thousandths of a core.
    pids: int  #: Limit on processes and threads.
    disk_mib: int  #: Disk limit; 0 means no limit.
    network: str  #: ``none`` (loopback only), ``open`` or ``rules``.
    sleep_after: int | None  #: Idle seconds before it sleeps; ``None``: never.
    ttl: int | None  #: Lifetime in seconds; ``None``: unlimited.
    env_names: tuple[str, ...]  #: Names only; the server never returns values.
    metadata: Mapping[str, Any]
    created_at: datetime
    expires_at: datetime | None
    usage: Usage | None  #: Only while it is running or paused; ``None`` in lists.
    #: Network profile that the rules come from; ``None`` after the rules were changed.
    network_profile: str | None = None
    #: Protocol version of the running agent; ``None`` while no agent runs.
    agent_version: int | None = None
    #: The agent is of an earlier version than the server. A sleep and a wake replace it.
    agent_outdated: bool = False
    auto_resume: bool = False  #: A call that works in the sandbox resumes it when it is paused.
    snapshot_every: int | None = None  #: Seconds between snapshots that the server takes; ``None``: never.
    keep: int = 5  #: How many snapshots at intervals exist at most.
    snapshot_on_destroy: bool = False  #: The server takes a snapshot before it deletes the sandbox.
    node: str | None = None  #: In a fleet: the node that has it.
    region: str | None = None  #: In a fleet: the region in which it was placed.
    placement_reason: str | None = None  #: In a fleet: why it was placed on this node, for people.
    boots: int = 1  #: How often it was started: at its creation, and at each wake since.

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> SandboxInfo:
        """Parse the server's JSON."""
        usage = body.get("usage")
        return cls(
            id=body["id"],
            state=body["state"],
            cause=body.get("cause"),
            image=body["image"],
            persistent=body["persistent"],
            memory_mib=body["memory_mib"],
            cpu_millis=body["cpu_millis"],
            pids=body["pids"],
            disk_mib=body["disk_mib"],
            network=body["network"],
            network_profile=body.get("network_profile"),
            agent_version=body.get("agent_version"),
            agent_outdated=body.get("agent_outdated", False),
            auto_resume=body.get("auto_resume", False),
            snapshot_every=body.get("snapshot_every_s"),
            keep=body.get("keep", 5),
            snapshot_on_destroy=body.get("snapshot_on_destroy", False),
            node=body.get("node"),
            region=body.get("region"),
            placement_reason=body.get("placement_reason"),
            boots=body.get("boots", 1),
            sleep_after=body.get("sleep_after_s"),
            ttl=body.get("ttl_s"),
            env_names=tuple(body["env_names"]),
            metadata=body["metadata"],
            created_at=time_from_ms(body["created_at_ms"]),
            expires_at=optional_time(body.get("expires_at_ms")),
            usage=None if usage is None else Usage.from_json(usage),
        )


@dataclass(frozen=True)
class FileAccess:
    """The part of the workspace that a session may access; fixed for the session's life.

    Paths are relative to ``/workspace``; ``""`` is the whole workspace. Write access implies read access,
    and the session always has its own directory ``.sessions/ID``. Paths without access are invisible to the
    session. At most 1000 paths.

    Example:
        FileAccess(read=["docs"], write=["out"])
    """

    read: Sequence[str] = ()  #: Must exist.
    write: Sequence[str] = ()  #: Created as directories if missing.

    def to_json(self) -> dict[str, list[str]]:
        """Convert to the server's JSON."""
        return {"read": list(self.read), "write": list(self.write)}


@dataclass(frozen=True)
class SessionInfo:
    """A session's configuration and state."""

    id: str
    sandbox_id: str
    cwd: str  #: Initial working directory.
    env_names: tuple[str, ...]  #: Names only; the server never returns values.
    command_timeout: float  #: Default timeout of commands in seconds; 0: none.
    file_access: FileAccess
    metadata: Mapping[str, Any]
    busy: bool  #: A command or program of the session is running.
    shell_pid: int | None  #: Pid of its shell inside the sandbox, if open.
    ttl: int | None  #: Lifetime in seconds; ``None``: unlimited.
    created_at: datetime
    last_activity: datetime  #: Start or end of the latest command.
    expires_at: datetime | None

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> SessionInfo:
        """Parse the server's JSON."""
        access = body["file_access"]
        return cls(
            id=body["id"],
            sandbox_id=body["sandbox_id"],
            cwd=body["cwd"],
            env_names=tuple(body["env_names"]),
            command_timeout=body["command_timeout_ms"] / 1000,
            file_access=FileAccess(tuple(access.get("read", ())), tuple(access.get("write", ()))),
            metadata=body["metadata"],
            busy=body["busy"],
            shell_pid=body.get("shell_pid"),
            ttl=body.get("ttl_s"),
            created_at=time_from_ms(body["created_at_ms"]),
            last_activity=time_from_ms(body["last_activity_ms"]),
            expires_at=optional_time(body.get("expires_at_ms")),
        )


@dataclass(frozen=True)
class FileInfo:
    """A file, directory or symbolic link."""

    name: str  #: Last part of the path; invalid UTF-8 becomes U+FFFD.
    path: str  #: Absolute path in the sandbox.
    type: str  #: ``file``, ``directory``, ``symlink`` or ``other``.
    size: int  #: In bytes.
    mode: int  #: Permission bits, e.g. ``0o644``.
    modified: datetime
    target: str | None  #: Target of a symbolic link.
    path_bytes: bytes = field(repr=False)  #: Exact bytes of the path; all file methods accept them.
    #: Why a recursive list skipped this directory: ``denied`` or ``too_large``.
    unread: str | None = None
    #: Version of a file, for ``if_match`` of a write. Lists leave it out.
    etag: str | None = None

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> FileInfo:
        """Parse the server's JSON."""
        return cls(
            name=body["name"],
            path=body["path"],
            type=body["type"],
            size=body["size"],
            mode=int(body["mode"], 8),
            modified=time_from_ms(body["modified_ms"]),
            target=body.get("target"),
            path_bytes=_exact_bytes(body, "path"),
            unread=body.get("unread"),
            etag=body.get("etag"),
        )


@dataclass(frozen=True)
class FoundLine:
    """A line found by a search, or a context line next to it."""

    path: str  #: Absolute path of the file.
    line: int  #: Line number, from 1.
    text: str  #: Without line ending; invalid UTF-8 becomes U+FFFD.
    spans: tuple[tuple[int, int], ...]  #: Matches: start and end offset in bytes.
    context: bool  #: A context line, not a match.
    cut: bool  #: Longer than 2048 bytes; only those are included.

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> FoundLine:
        """Parse the server's JSON."""
        return cls(
            path=body["path"],
            line=body["line"],
            text=body["text"],
            spans=tuple((start, end) for start, end in body.get("spans", ())),
            context=body.get("context", False),
            cut=body.get("cut", False),
        )


@dataclass(frozen=True)
class SearchResult:
    """Result of a search."""

    lines: tuple[FoundLine, ...]  #: Sorted by path, then by line number.
    more: bool  #: The limit was reached: narrow the search or raise ``limit``.
    files: int  #: Number of files searched.
    binary: int  #: Binary files among them: searched only up to their first NUL byte.
    unread: int  #: Files that could not be read or have a line above 8 MiB.

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> SearchResult:
        """Parse the server's JSON."""
        return cls(
            lines=tuple(FoundLine.from_json(line) for line in body["lines"]),
            more=body["more"],
            files=body["files"],
            binary=body["binary"],
            unread=body["unread"],
        )


@dataclass(frozen=True)
class FileEvent:
    """A change in a watched directory.

    ``type`` is ``created``, ``modified``, ``moved``, ``deleted``; ``overflow`` (changes were lost: list the
    directory again); ``unwatched`` (the limit of 8192 watched directories was exceeded); or ``gone``, the
    last event: the watched directory was deleted or moved.
    """

    type: str
    path: str  #: Absolute path in the sandbox.
    to: str | None  #: New path, for ``moved``.
    directory: bool  #: The path is a directory.

    @classmethod
    def from_event(cls, name: str, body: Mapping[str, Any]) -> FileEvent:
        """Parse a server-sent event."""
        return cls(
            type=name, path=body.get("path", ""), to=body.get("to"), directory=body.get("directory", False)
        )


@dataclass(frozen=True)
class ListeningPort:
    """A port on which a program in the sandbox listens."""

    port: int
    addresses: tuple[str, ...]  #: Bound addresses; ``0.0.0.0`` and ``::`` mean all of the sandbox's.
    path: str  #: URL path on the server that proxies to the port; needs a key.

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> ListeningPort:
        """Parse the server's JSON."""
        return cls(port=body["port"], addresses=tuple(body["addresses"]), path=body["path"])


@dataclass(frozen=True)
class PortLink:
    """A signed link to a port. Everyone who has ``url`` may use the port until ``expires_at``."""

    port: int
    name: str | None
    url: str = field(repr=False)
    token: str = field(repr=False)  #: The link's token: ``?isolet-token=`` on the port's host name.
    expires_at: datetime

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> PortLink:
        """Parse the server's JSON."""
        ends = datetime.fromisoformat(body["expires_at"].replace("Z", "+00:00"))
        return cls(body["port"], body["name"], body["url"], body["token"], ends)


@dataclass(frozen=True)
class ExposedPort:
    """A port that has at least one link."""

    port: int
    name: str | None
    url: str  #: Address without the token.
    active: bool  #: A program is listening on the port.

    @classmethod
    def from_json(cls, body: Mapping[str, Any], active: bool) -> ExposedPort:
        """Parse the server's JSON."""
        return cls(port=body["port"], name=body["name"], url=body["url"], active=active)


@dataclass(frozen=True)
class SandboxEvent:
    """An event of a sandbox.

    ``type`` is ``created``, ``running``, ``paused``, ``resumed``, ``sleeping``, ``woke``, ``destroyed``,
    ``unreachable``, ``failed``, ``session_created``, ``session_deleted``, ``command_started``,
    ``command_exited``, ``process_started``, ``process_exited``, ``terminal_opened``, ``terminal_ended``,
    ``port_opened``, ``port_closed`` (ports are only observed while a client follows events),
    ``snapshot_taken``, ``snapshot_failed``, ``restored``, ``network_changed``, ``network_denied``, or
    ``gap``: events were missed, because the server no longer has them or because a connection broke.
    """

    type: str
    id: int | None  #: Increases; pass it as ``after`` to continue. ``None`` for ``gap``.
    at: datetime | None  #: ``None`` for ``gap``.
    sandbox: str | None
    session: str | None = None
    command: str | None = None  #: Command id; empty for a program that runs without a shell.
    code: int | None = None  #: Exit code, for ``command_exited`` and ``process_exited``.
    cause: str | None = None  #: Reason, for ``unreachable``, ``failed`` and ``snapshot_failed``.
    port: int | None = None  #: For ``port_opened`` and ``port_closed``.
    process: str | None = None  #: For ``process_started`` and ``process_exited``.
    signal: int | None = None  #: For ``process_exited``, if a signal ended the process.
    missed: tuple[int, int] | None = None  #: For ``gap``: first and last event id, if known.
    network: str | None = None  #: For ``network_changed``: ``none``, ``open`` or ``rules``.
    denied: Denied | None = None  #: For ``network_denied``.
    snapshot: str | None = None  #: For ``snapshot_taken`` and ``restored``: its id.
    #: For ``snapshot_taken`` and ``snapshot_failed``: ``schedule`` or ``destroy``.
    trigger: str | None = None

    @classmethod
    def from_event(cls, name: str, body: Mapping[str, Any]) -> SandboxEvent:
        """Parse a server-sent event."""
        return cls(
            type=name,
            id=body.get("id"),
            at=optional_time(body.get("at_ms")),
            sandbox=body.get("sandbox"),
            session=body.get("session"),
            command=body.get("command"),
            code=body.get("code"),
            cause=body.get("cause"),
            port=body.get("port"),
            process=body.get("process"),
            signal=body.get("signal"),
            missed=(body["from"], body["to"]) if name == "gap" else None,
            network=body.get("network"),
            denied=Denied.from_json(body) if name == "network_denied" else None,
            snapshot=body.get("snapshot"),
            trigger=body.get("trigger"),
        )


@dataclass(frozen=True)
class LostState:
    """A session whose shell state was not fully restored after a sleep."""

    session: str
    why: str  #: ``crash``, ``too_large``, ``no_answer``, ``not_kept`` or ``not_restored``.
    saved_at: datetime | None  #: Time of the state that was restored; ``None``: a new shell.

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> LostState:
        """Parse the server's JSON."""
        return cls(session=body["session"], why=body["why"], saved_at=optional_time(body.get("saved_at_ms")))


@dataclass(frozen=True)
class RecoveredSandbox:
    """A sandbox after its recovery, and what is lost."""

    info: SandboxInfo  #: Asleep, unless it had not failed.
    #: What is lost, of ``shells``, ``processes`` and ``shell_state``; empty if nothing is, or a result has
    #: reported it already. The next command's result reports it again.
    lost: tuple[str, ...]
    lost_state: tuple[LostState, ...]  #: Sessions whose shell state is not what it was.

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> RecoveredSandbox:
        """Parse the server's JSON."""
        return cls(
            info=SandboxInfo.from_json(body),
            lost=tuple(body.get("lost") or ()),
            lost_state=tuple(LostState.from_json(one) for one in body.get("lost_state") or ()),
        )


@dataclass(frozen=True)
class RestoredSandbox:
    """A sandbox after a snapshot was restored in place, and what is lost."""

    info: SandboxInfo  #: Running if it ran before, otherwise asleep.
    #: What was ended, and what the snapshot does not contain. The next command's result reports it again.
    lost: tuple[str, ...]
    lost_state: tuple[LostState, ...]  #: Sessions whose shell state is not complete.

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> RestoredSandbox:
        """Parse the server's JSON."""
        return cls(
            info=SandboxInfo.from_json(body),
            lost=tuple(body.get("lost") or ()),
            lost_state=tuple(LostState.from_json(one) for one in body.get("lost_state") or ()),
        )


@dataclass(frozen=True)
class Snapshot:
    """The files of a sandbox and the state of its shells at one moment."""

    id: str
    name: str | None  #: Can stand for the id.
    sandbox: str  #: The id that the sandbox had.
    metadata: Mapping[str, Any]
    created_at: datetime
    expires_at: datetime | None  #: When the server deletes it; ``None``: never.
    size_bytes: int  #: Size of its files. A copy by reference takes less of the disk.
    frozen_ms: float  #: How long the processes of the sandbox were frozen.
    lost: tuple[str, ...]  #: What was open and is not part of it, such as ``processes``.
    #: Why it was taken: ``request``, ``schedule`` (``snapshot_every``) or ``destroy``.
    trigger: str = "request"

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Snapshot:
        """Parse the server's JSON."""
        return cls(
            id=body["id"],
            name=body.get("name"),
            sandbox=body["sandbox"],
            metadata=body["metadata"],
            created_at=time_from_ms(body["created_at_ms"]),
            expires_at=optional_time(body.get("expires_at_ms")),
            size_bytes=body["size_bytes"],
            frozen_ms=body["frozen_ms"],
            lost=tuple(body.get("lost") or ()),
            trigger=body.get("trigger", "request"),
        )


@dataclass(frozen=True)
class SnapshotChange:
    """A path that differs between two snapshots."""

    change: str  #: ``added``, ``changed`` or ``removed``.
    file: FileInfo  #: The file in the second snapshot, or in the first if it was removed.

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> SnapshotChange:
        """Parse the server's JSON."""
        return cls(change=body["change"], file=FileInfo.from_json(body))


@dataclass(frozen=True)
class ProcessInfo:
    """State of a background process at the time of the call."""

    id: str
    session: str | None  #: Session that it was started in, if any.
    status: str  #: ``running``, ``exited``, ``killed`` (by a signal) or ``lost`` (in a sleep or crash).
    command: str  #: At most the first 512 bytes.
    pid: int | None  #: Pid inside the sandbox; ``None`` for a lost process.
    exit_code: int | None  #: 128 plus the signal number after a signal; ``None`` while running.
    signal: int | None  #: Number of the signal that ended it.
    timed_out: bool  #: The timeout ended the process.
    oom: bool  #: The kernel's OOM killer was active in the sandbox while it ran.
    remains: bool  #: It has ended, but child processes are still running.
    started_at: datetime
    ended_at: datetime | None
    stdout_bytes: int  #: Bytes written so far.
    stderr_bytes: int  #: Bytes written so far.

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> ProcessInfo:
        """Parse the server's JSON."""
        return cls(
            id=body["id"],
            session=body.get("session"),
            status=body["status"],
            command=body["command"],
            pid=body.get("pid"),
            exit_code=body.get("exit_code"),
            signal=body.get("signal"),
            timed_out=body["timed_out"],
            oom=body["oom"],
            remains=body["remains"],
            started_at=time_from_ms(body["started_at_ms"]),
            ended_at=optional_time(body.get("ended_at_ms")),
            stdout_bytes=body["stdout_bytes"],
            stderr_bytes=body["stderr_bytes"],
        )


@dataclass(frozen=True)
class ProcessLog:
    """A part of a process's log."""

    stdout: bytes
    stderr: bytes
    missed: int  #: Requested bytes that the server no longer has.
    position: int  #: Position to continue from.

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> ProcessLog:
        """Parse the server's JSON."""
        return cls(
            stdout=_exact_bytes(body, "stdout"),
            stderr=_exact_bytes(body, "stderr"),
            missed=body["missed"],
            position=body["position"],
        )


@dataclass(frozen=True)
class ProcessOutput:
    """A piece of a process's log while following it."""

    stream: str  #: ``stdout``, ``stderr``, or ``gap`` where bytes are lost.
    data: bytes
    missed: int  #: Number of lost bytes, for ``gap``.
    position: int  #: Position after this piece.

    @classmethod
    def from_event(cls, name: str, body: Mapping[str, Any], position: int) -> ProcessOutput:
        """Parse a server-sent event."""
        missed = body["to"] - body["from"] if name == "gap" else 0
        return cls(name, base64.b64decode(body.get("data_b64", "")), missed, position)


@dataclass(frozen=True)
class FoundLogLine:
    """A log line that :meth:`AsyncProcess.wait_for_log` found."""

    line: str  #: The line, as far as it was written.
    stream: str  #: ``stdout`` or ``stderr``.
    position: int  #: Position after the line, for the next wait.
    #: What each group of ``regex`` matched, after the whole match; ``None``: the group took no part.
    groups: tuple[str | None, ...] = ()
    #: What the groups of ``regex`` with a name matched.
    named_groups: Mapping[str, str | None] = field(default_factory=dict)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> FoundLogLine:
        """Parse the server's JSON."""
        groups = tuple(body.get("groups", ()))
        named = body.get("named_groups", {})
        return cls(body["line"], body["stream"], body["position"], groups, named)
