"""What the server tells of sandboxes, sessions, files and events. Times are in UTC."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def moment(ms: float) -> datetime:
    """A time told in ms since 1970."""
    return _EPOCH + timedelta(milliseconds=ms)


def _maybe(ms: float | None) -> datetime | None:
    return None if ms is None else moment(ms)


def _exact(told: Mapping[str, Any], name: str) -> bytes:
    b64 = told.get(f"{name}_b64")
    return base64.b64decode(b64) if b64 else str(told.get(name, "")).encode()


@dataclass(frozen=True)
class Traffic:
    """What went between a sandbox and the world, over its sleeps; heads of packets included."""

    sent_bytes: int  #: That it sent.
    received_bytes: int  #: That it received.
    sent_packets: int  #: That it sent.
    received_packets: int  #: That it received.
    refused: int  #: Packets, connections and lookups that were refused.

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Traffic:
        """Reads it from JSON."""
        return cls(
            sent_bytes=told["sent_bytes"],
            received_bytes=told["received_bytes"],
            sent_packets=told["sent_packets"],
            received_packets=told["received_packets"],
            refused=told["refused"],
        )


@dataclass(frozen=True)
class Usage:
    """What a running sandbox uses."""

    cpu_ms: float  #: Processor time.
    memory_bytes: int  #: Now.
    memory_peak_bytes: int  #: The most it ever was.
    pids: int  #: Processes and threads now.
    oom_kills: int  #: Processes that were killed for memory.
    uptime_ms: int  #: Since its creation.
    awake_ms: int  #: How much of that it did not sleep.
    disk_bytes: int | None  #: What its files take, where ``disk_mib`` limits them.
    network: Traffic | None = None  #: Of one that has or had a way out.

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Usage:
        """Reads it from JSON."""
        return cls(
            cpu_ms=told["cpu_ms"],
            memory_bytes=told["memory_bytes"],
            memory_peak_bytes=told["memory_peak_bytes"],
            pids=told["pids"],
            oom_kills=told["oom_kills"],
            uptime_ms=told["uptime_ms"],
            awake_ms=told["awake_ms"],
            disk_bytes=told.get("disk_bytes"),
            network=Traffic.of(told["network"]) if told.get("network") else None,
        )


@dataclass(frozen=True)
class SandboxInfo:
    """A sandbox, as its record has it."""

    id: str
    state: str  #: ``creating``, ``running``, ``sleeping``, ``unreachable``, ``failed`` or ``destroyed``.
    cause: str | None  #: Why it failed.
    image: str  #: As it was asked for.
    persistent: bool  #: Its files outlive a sleep.
    memory_mib: int
    cpu_millis: int  #: Thousandths of one core.
    pids: int  #: Processes and threads that it may have.
    disk_mib: int  #: 0: as much as the server's disk has.
    network: str  #: ``none`` (loopback alone), ``open`` or ``rules``.
    sleep_after: int | None  #: Seconds without use; ``None`` never.
    ttl: int | None  #: Seconds to live; ``None`` never ends by itself.
    env_names: tuple[str, ...]  #: Values are never told.
    metadata: Mapping[str, Any]
    created_at: datetime
    expires_at: datetime | None
    usage: Usage | None  #: Of one running sandbox; not in lists.
    #: The network profile that its rules were taken from, unless they were changed since.
    network_profile: str | None = None

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> SandboxInfo:
        """Reads it from JSON."""
        usage = told.get("usage")
        return cls(
            id=told["id"],
            state=told["state"],
            cause=told.get("cause"),
            image=told["image"],
            persistent=told["persistent"],
            memory_mib=told["memory_mib"],
            cpu_millis=told["cpu_millis"],
            pids=told["pids"],
            disk_mib=told["disk_mib"],
            network=told["network"],
            network_profile=told.get("network_profile"),
            sleep_after=told.get("sleep_after_s"),
            ttl=told.get("ttl_s"),
            env_names=tuple(told["env_names"]),
            metadata=told["metadata"],
            created_at=moment(told["created_at_ms"]),
            expires_at=_maybe(told.get("expires_at_ms")),
            usage=None if usage is None else Usage.of(usage),
        )


@dataclass(frozen=True)
class NetworkRules:
    """Where a sandbox may connect to: what ``allow`` has and ``deny`` has not.

    A rule is a host, ``*.`` and a host, an address, a network (``10.0.0.0/8``) or ``*``, with or without
    ``:PORT``. At most 256 of each.
    """

    allow: Sequence[str] = ()
    deny: Sequence[str] = ()  #: Also where ``allow`` has it.

    def told(self) -> dict[str, list[str]]:
        """As the server takes it."""
        return {"allow": list(self.allow), "deny": list(self.deny)}


@dataclass(frozen=True)
class Credential:
    """A value that is put into a sandbox's requests to a host, from outside.

    ``header`` is set to it; ``placeholder`` is what stands for it in headers that the sandbox sends. One
    of both is needed. Without ``:PORT`` the host has it within TLS alone.
    """

    host: str
    value: str = field(repr=False)
    header: str | None = None
    placeholder: str | None = None

    def told(self) -> dict[str, str]:
        """As the server takes it."""
        told = {"host": self.host, "value": self.value}
        told |= {} if self.header is None else {"header": self.header}
        return told | ({} if self.placeholder is None else {"placeholder": self.placeholder})


@dataclass(frozen=True)
class CredentialInfo:
    """What is known of a credential: all but its value."""

    host: str
    header: str | None
    placeholder: str | None
    allowed: bool  #: Whether the network's rules let the host be reached.

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> CredentialInfo:
        """Reads it from JSON."""
        return cls(told["host"], told.get("header"), told.get("placeholder"), told["allowed"])

    def named(self) -> dict[str, str]:
        """As the server is told which one is meant."""
        named = {"host": self.host, "header": self.header, "placeholder": self.placeholder}
        return {name: value for name, value in named.items() if value is not None}


@dataclass(frozen=True)
class NetworkInfo:
    """A sandbox's network, as its record has it."""

    mode: str  #: ``none`` (loopback alone), ``open`` or ``rules``.
    allow: tuple[str, ...]
    deny: tuple[str, ...]
    profile: str | None  #: That its rules were taken from, unless they were changed since.
    credentials: tuple[CredentialInfo, ...] = ()  #: What is put into its requests.

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> NetworkInfo:
        """Reads it from JSON."""
        lent = tuple(CredentialInfo.of(one) for one in told.get("credentials", ()))
        return cls(told["mode"], tuple(told["allow"]), tuple(told["deny"]), told.get("profile"), lent)


@dataclass(frozen=True)
class Denied:
    """Something that was refused to a sandbox."""

    host: str  #: The name, where one is known; else the address.
    port: int | None  #: ``None`` of a name that was looked up, and of protocols without ports.
    protocol: str  #: ``tcp``, ``udp``, ``icmp``, ``dns``, or a number of IP's.
    #: The rule of ``deny``; ``default``: no rule allows it; else why it is closed to every sandbox:
    #: ``host``, ``private``, ``link-local``, …
    rule: str
    times: int  #: How often.

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Denied:
        """Reads it from JSON."""
        return cls(told["host"], told.get("port"), told["protocol"], told["rule"], told["times"])

    def told(self) -> dict[str, Any]:
        """As the server takes it."""
        return {
            "host": self.host,
            "port": self.port,
            "protocol": self.protocol,
            "rule": self.rule,
            "times": self.times,
        }


@dataclass(frozen=True)
class FileAccess:
    """What of the workspace a session sees, fixed for its life.

    Paths lie below ``/workspace``, without a leading slash; ``""`` is all of it. Writing implies
    reading, and the session's own ``.sessions/ID`` is always there. What is not granted does not
    exist for it. At most 1000 paths.
    """

    read: Sequence[str] = ()  #: They must be there.
    write: Sequence[str] = ()  #: Made as directories where they are not there.

    def told(self) -> dict[str, list[str]]:
        """As the server takes it."""
        return {"read": list(self.read), "write": list(self.write)}


@dataclass(frozen=True)
class SessionInfo:
    """A session, as its record has it."""

    id: str
    sandbox_id: str
    cwd: str  #: Where its shell begins.
    env_names: tuple[str, ...]  #: Values are never told.
    command_timeout: float  #: Seconds, for commands that name none; 0 never.
    file_access: FileAccess
    metadata: Mapping[str, Any]
    busy: bool  #: A command or program of it is running.
    shell_pid: int | None  #: Inside, when its shell is open.
    ttl: int | None  #: Seconds to live; ``None`` never ends by itself.
    created_at: datetime
    last_activity: datetime  #: Last begin or end of a command.
    expires_at: datetime | None

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> SessionInfo:
        """Reads it from JSON."""
        access = told["file_access"]
        return cls(
            id=told["id"],
            sandbox_id=told["sandbox_id"],
            cwd=told["cwd"],
            env_names=tuple(told["env_names"]),
            command_timeout=told["command_timeout_ms"] / 1000,
            file_access=FileAccess(tuple(access.get("read", ())), tuple(access.get("write", ()))),
            metadata=told["metadata"],
            busy=told["busy"],
            shell_pid=told.get("shell_pid"),
            ttl=told.get("ttl_s"),
            created_at=moment(told["created_at_ms"]),
            last_activity=moment(told["last_activity_ms"]),
            expires_at=_maybe(told.get("expires_at_ms")),
        )


@dataclass(frozen=True)
class FileInfo:
    """A file, a directory or a link."""

    name: str  #: The last part of its path; U+FFFD for what is no UTF-8.
    path: str  #: From the root of the sandbox on.
    type: str  #: ``file``, ``directory``, ``symlink`` or ``other``.
    size: int  #: In bytes.
    mode: int  #: Permission bits.
    modified: datetime
    target: str | None  #: What a symbolic link says.
    path_bytes: bytes = field(repr=False)  #: The path's exact bytes; every file call takes them.
    #: Of a directory that a recursive list could not look into: ``denied``, ``too_large``.
    unread: str | None = None

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> FileInfo:
        """Reads it from JSON."""
        return cls(
            name=told["name"],
            path=told["path"],
            type=told["type"],
            size=told["size"],
            mode=int(told["mode"], 8),
            modified=moment(told["modified_ms"]),
            target=told.get("target"),
            path_bytes=_exact(told, "path"),
            unread=told.get("unread"),
        )


@dataclass(frozen=True)
class SavedFile:
    """A file that was written."""

    path: str  #: From the root of the sandbox on.
    size: int  #: In bytes.
    modified: datetime

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> SavedFile:
        """Reads it from JSON."""
        return cls(path=told["path"], size=told["size"], modified=moment(told["modified_ms"]))


@dataclass(frozen=True)
class FoundLine:
    """A line that matches, or one beside it."""

    path: str  #: Of its file, from the root of the sandbox on.
    line: int  #: From 1 on.
    text: str  #: Without its end; U+FFFD for what is no UTF-8.
    spans: tuple[tuple[int, int], ...]  #: What matched: bytes of the line, from and to.
    context: bool  #: It stands beside a match, and is none.
    cut: bool  #: Only its first 2048 bytes are told.

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> FoundLine:
        """Reads it from JSON."""
        return cls(
            path=told["path"],
            line=told["line"],
            text=told["text"],
            spans=tuple((start, end) for start, end in told.get("spans", ())),
            context=told.get("context", False),
            cut=told.get("cut", False),
        )


@dataclass(frozen=True)
class SearchResult:
    """What a search has found."""

    lines: tuple[FoundLine, ...]  #: Sorted by path, then by number.
    more: bool  #: There is more than that: narrow the search, or raise its limit.
    files: int  #: That were searched.
    binary: int  #: Of these: what lies behind their first NUL was not looked at.
    unread: int  #: That could not be read, or hold a line above 8 MiB.

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> SearchResult:
        """Reads it from JSON."""
        return cls(
            lines=tuple(FoundLine.of(line) for line in told["lines"]),
            more=told["more"],
            files=told["files"],
            binary=told["binary"],
            unread=told["unread"],
        )


@dataclass(frozen=True)
class FileEvent:
    """Something that happened in a watched directory.

    ``type`` is ``created``, ``modified``, ``moved``, ``deleted``; ``overflow`` (more has happened
    than could be told: look anew), ``unwatched`` (a directory beyond the 8192 that a watch has), or
    ``gone``, the last one: the watched directory has ended or has another name.
    """

    type: str
    path: str  #: From the root of the sandbox on.
    to: str | None  #: Of what was moved: its new path.
    directory: bool

    @classmethod
    def of(cls, name: str, told: Mapping[str, Any]) -> FileEvent:
        """Reads it from JSON."""
        return cls(
            type=name, path=told.get("path", ""), to=told.get("to"), directory=told.get("directory", False)
        )


@dataclass(frozen=True)
class ListeningPort:
    """A port on which something in a sandbox listens."""

    port: int
    addresses: tuple[str, ...]  #: That it is bound to; ``0.0.0.0`` and ``::`` are all of the sandbox's.
    path: str  #: Where it is reached on the server, with a key.

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> ListeningPort:
        """Reads it from JSON."""
        return cls(port=told["port"], addresses=tuple(told["addresses"]), path=told["path"])


@dataclass(frozen=True)
class PortLink:
    """A link to a port: who has its ``url`` has the right to that port, until ``expires_at``."""

    port: int
    name: str | None
    url: str = field(repr=False)
    token: str = field(repr=False)  #: The right alone: ``?isolet-token=`` on the port's own host.
    expires_at: datetime

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> PortLink:
        """Reads it from JSON."""
        ends = datetime.fromisoformat(told["expires_at"].replace("Z", "+00:00"))
        return cls(told["port"], told["name"], told["url"], told["token"], ends)


@dataclass(frozen=True)
class ExposedPort:
    """A port that links lead to."""

    port: int
    name: str | None
    url: str  #: Its address, without the right to it.
    active: bool  #: Something listens there now.

    @classmethod
    def of(cls, told: Mapping[str, Any], active: bool) -> ExposedPort:
        """Reads it from JSON."""
        return cls(port=told["port"], name=told["name"], url=told["url"], active=active)


@dataclass(frozen=True)
class SandboxEvent:
    """Something that happened to a sandbox.

    ``type`` is ``created``, ``running``, ``sleeping``, ``woke``, ``destroyed``, ``unreachable``,
    ``failed``, ``session_created``, ``session_deleted``, ``command_started``, ``command_exited``,
    ``process_started``, ``process_exited``, ``terminal_opened``, ``terminal_ended``, ``port_opened``,
    ``port_closed`` (looked for while somebody follows), ``network_changed``, ``network_denied``, or
    ``gap``: events that are no longer held, or that a broken connection may have taken.
    """

    type: str
    id: int | None  #: Grows; give it back as ``after``. ``None`` for a ``gap``.
    at: datetime | None  #: ``None`` for a ``gap``.
    sandbox: str | None
    session: str | None = None
    command: str | None = None  #: Its id; empty for a program without a shell.
    code: int | None = None  #: With ``command_exited`` and ``process_exited``.
    cause: str | None = None  #: With ``unreachable`` and ``failed``.
    port: int | None = None  #: With ``port_opened`` and ``port_closed``.
    process: str | None = None  #: With ``process_started`` and ``process_exited``.
    signal: int | None = None  #: With ``process_exited``, where one ended it.
    missed: tuple[int, int] | None = None  #: With ``gap``: from and to, where they are known.
    network: str | None = None  #: With ``network_changed``: ``none``, ``open`` or ``rules``.
    denied: Denied | None = None  #: With ``network_denied``.

    @classmethod
    def of(cls, name: str, told: Mapping[str, Any]) -> SandboxEvent:
        """Reads it from JSON."""
        return cls(
            type=name,
            id=told.get("id"),
            at=_maybe(told.get("at_ms")),
            sandbox=told.get("sandbox"),
            session=told.get("session"),
            command=told.get("command"),
            code=told.get("code"),
            cause=told.get("cause"),
            port=told.get("port"),
            process=told.get("process"),
            signal=told.get("signal"),
            missed=(told["from"], told["to"]) if name == "gap" else None,
            network=told.get("network"),
            denied=Denied.of(told) if name == "network_denied" else None,
        )


@dataclass(frozen=True)
class LostState:
    """A session whose shell does not come back from a sleep as it was."""

    session: str
    why: str  #: ``crash``, ``too_large``, ``no_answer``, ``not_kept`` or ``not_restored``.
    saved_at: datetime | None  #: It comes back as it was then; ``None``: as new.

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> LostState:
        """Reads it from JSON."""
        return cls(session=told["session"], why=told["why"], saved_at=_maybe(told.get("saved_at_ms")))


@dataclass(frozen=True)
class ProcessInfo:
    """A process, as it was at the moment of the call."""

    id: str
    session: str | None  #: That it was started in.
    status: str  #: ``running``, ``exited``, ``killed`` (by a signal) or ``lost`` (by a sleep or a crash).
    command: str  #: At most the first 512 bytes.
    pid: int | None  #: Inside; not of a lost one.
    exit_code: int | None  #: 128 and the signal where one ended it; ``None`` while it runs.
    signal: int | None  #: That ended it.
    timed_out: bool  #: Its timeout ended it.
    oom: bool  #: The kernel killed something of the sandbox for memory while it ran.
    remains: bool  #: It has ended, and something that it started runs on.
    started_at: datetime
    ended_at: datetime | None
    stdout_bytes: int  #: So far.
    stderr_bytes: int  #: So far.

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> ProcessInfo:
        """Reads it from JSON."""
        return cls(
            id=told["id"],
            session=told.get("session"),
            status=told["status"],
            command=told["command"],
            pid=told.get("pid"),
            exit_code=told.get("exit_code"),
            signal=told.get("signal"),
            timed_out=told["timed_out"],
            oom=told["oom"],
            remains=told["remains"],
            started_at=moment(told["started_at_ms"]),
            ended_at=_maybe(told.get("ended_at_ms")),
            stdout_bytes=told["stdout_bytes"],
            stderr_bytes=told["stderr_bytes"],
        )


@dataclass(frozen=True)
class ProcessLog:
    """A part of a process's log."""

    stdout: bytes
    stderr: bytes
    missed: int  #: Bytes that were asked for and are no longer held.
    position: int  #: Where it goes on.

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> ProcessLog:
        """Reads it from JSON."""
        return cls(
            stdout=_exact(told, "stdout"),
            stderr=_exact(told, "stderr"),
            missed=told["missed"],
            position=told["position"],
        )


@dataclass(frozen=True)
class ProcessOutput:
    """A piece of a log that is followed."""

    stream: str  #: ``stdout`` or ``stderr``; ``gap`` where bytes are no longer held.
    data: bytes
    missed: int  #: Of a ``gap``: how many.
    position: int  #: Behind it.

    @classmethod
    def of(cls, name: str, told: Mapping[str, Any], position: int) -> ProcessOutput:
        """Reads it from an event."""
        missed = told["to"] - told["from"] if name == "gap" else 0
        return cls(name, base64.b64decode(told.get("data_b64", "")), missed, position)


@dataclass(frozen=True)
class FoundLogLine:
    """A line that was waited for."""

    line: str  #: As far as it was there.
    stream: str  #: ``stdout`` or ``stderr``.
    position: int  #: Behind it: for the next wait.

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> FoundLogLine:
        """Reads it from JSON."""
        return cls(told["line"], told["stream"], told["position"])
