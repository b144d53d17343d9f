"""Output and exit status of commands."""

from __future__ import annotations

import base64
import codecs
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .errors import CommandError
from .models import LostState
from .network_models import Denied

#: Default limit on the output in an :class:`ExecResult`, in bytes per stream.
OUTPUT_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True)
class Output:
    """A piece of a command's output."""

    stream: str  #: ``stdout`` or ``stderr``.
    text: str  #: Never splits a character; invalid UTF-8 becomes U+FFFD.
    data: bytes = field(repr=False)  #: Raw bytes.
    offset: int  #: Position of the first byte in the stream of this shell or program.
    missed: int = 0  #: Lost bytes before this piece.


@dataclass(frozen=True)
class Truncated:
    """Number of bytes per stream that a command wrote and that its result does not contain."""

    stdout: int
    stderr: int


@dataclass(frozen=True)
class ExecResult:
    """Exit status and output of a command."""

    command: str
    exit_code: int  #: 128 plus the signal number if a signal ended the command.
    stdout: str  #: Invalid UTF-8 becomes U+FFFD; ``stdout_bytes`` is exact.
    stderr: str
    duration: float  #: Seconds.
    signal: int | None = None  #: Number of the signal that ended it.
    timed_out: bool = False  #: The timeout ended the command.
    cancelled: bool = False  #: A client cancelled the command.
    oom: bool = False  #: The kernel's OOM killer was active in the sandbox while it ran.
    session: str | None = None  #: Session id; ``None`` for a program or a private shell.
    fresh: bool = False  #: Ran in a new shell, because the previous one had exited.
    #: The shell ended with this command, as ``exit`` does; ``None`` for a program.
    shell_ended: bool | None = None
    truncated: Truncated | None = None  #: Number of bytes beyond the output limit.
    #: Only in the first result after the sandbox slept: what did not survive the sleep, of ``shells``,
    #: ``terminals``, ``processes``, ``files`` and ``shell_state``.
    lost: tuple[str, ...] | None = None
    #: Sessions whose shell state was not fully restored; set if ``lost`` contains ``shell_state``.
    lost_state: tuple[LostState, ...] = ()
    #: Connections that the network rules denied to the sandbox while the command ran, at most 64. Pass
    #: them to ``change_network`` as ``allow_add`` to allow them.
    denied: tuple[Denied, ...] = ()
    denied_lost: int = 0  #: Number of further denials that are not listed.
    stdout_bytes: bytes = field(default=b"", repr=False)
    stderr_bytes: bytes = field(default=b"", repr=False)

    @property
    def ok(self) -> bool:
        """The exit code is 0."""
        return self.exit_code == 0

    def check(self) -> ExecResult:
        """Raise an error if the command failed.

        Returns:
            this result.

        Raises:
            CommandError: the exit code is not 0.

        Example:
            sandbox.exec("make").check()
        """
        if not self.ok:
            raise CommandError(self)
        return self


def result_from_json(command: str, body: Mapping[str, Any]) -> ExecResult:
    """Parse a complete JSON response."""
    texts = [str(body.get(name, "")) for name in ("stdout", "stderr")]
    exact = [body.get(f"{name}_b64") for name in ("stdout", "stderr")]
    raw = [base64.b64decode(b64) if b64 else text.encode() for b64, text in zip(exact, texts, strict=True)]
    cut = body.get("truncated")
    missing = Truncated(cut["stdout_bytes"], cut["stderr_bytes"]) if cut else None
    return _result(command, body, (texts[0], texts[1]), (raw[0], raw[1]), missing)


def _result(
    command: str,
    body: Mapping[str, Any],
    texts: tuple[str, str],
    raw: tuple[bytes, bytes],
    missing: Truncated | None,
) -> ExecResult:
    lost = body.get("lost")
    return ExecResult(
        command=command,
        exit_code=body["exit_code"] if "exit_code" in body else body["code"],
        stdout=texts[0],
        stderr=texts[1],
        duration=round(body["duration_ms"] / 1000, 6),
        signal=body.get("signal"),
        timed_out=body.get("timed_out", False),
        cancelled=body.get("cancelled", False),
        oom=body.get("oom", False),
        session=body.get("session"),
        fresh=bool(body.get("fresh")),
        shell_ended=body.get("shell_ended"),
        truncated=missing,
        lost=None if lost is None else tuple(lost),
        lost_state=tuple(LostState.from_json(one) for one in body.get("lost_state") or ()),
        denied=tuple(Denied.from_json(one) for one in body.get("denied") or ()),
        denied_lost=body.get("denied_lost", 0),
        stdout_bytes=raw[0],
        stderr_bytes=raw[1],
    )


class _StreamBuffer:
    """Collected output of one stream, and an incomplete character at its end."""

    def __init__(self) -> None:
        self.bytes = bytearray()
        self.cut = 0
        self.texts = codecs.getincrementaldecoder("utf-8")("replace")

    def take(self, data: bytes, limit_bytes: int) -> None:
        # Output after a gap is not collected.
        room = 0 if self.cut else limit_bytes - len(self.bytes)
        self.bytes += data[: max(room, 0)]
        self.cut += len(data) - min(len(data), max(room, 0))


class Collector:
    """Collects the output of one command, at most ``limit_bytes`` of each stream."""

    def __init__(self, command: str, limit_bytes: int = OUTPUT_BYTES) -> None:
        self.command = command
        self.limit_bytes = limit_bytes
        self._streams = {"stdout": _StreamBuffer(), "stderr": _StreamBuffer()}

    def take(self, stream: str, offset: int, data: bytes) -> Output:
        """Add output."""
        buffer = self._streams[stream]
        buffer.take(data, self.limit_bytes)
        return Output(stream, buffer.texts.decode(data), data, offset)

    def miss(self, stream: str, start: int, end: int) -> Output:
        """Record that output from ``start`` to ``end`` is lost."""
        buffer = self._streams[stream]
        buffer.cut += end - start
        # An incomplete character before the gap stays incomplete.
        text = buffer.texts.decode(b"", final=True)
        buffer.texts.reset()
        return Output(stream, text, b"", end, missed=end - start)

    def flush(self) -> list[Output]:
        """Take incomplete characters at the end of the output."""
        texts = ((name, buffer.texts.decode(b"", final=True)) for name, buffer in self._streams.items())
        return [Output(name, text, b"", 0) for name, text in texts if text]

    def result(self, body: Mapping[str, Any]) -> ExecResult:
        """Build the result from the collected output and the server's exit message."""
        out, err = self._streams["stdout"], self._streams["stderr"]
        # Total number of bytes written. A shell omits it for streams without output.
        for buffer, name in ((out, "out_bytes"), (err, "err_bytes")):
            if name in body:
                buffer.cut = max(int(body[name]) - len(buffer.bytes), 0)
        missing = Truncated(out.cut, err.cut) if out.cut or err.cut else None
        raw = (bytes(out.bytes), bytes(err.bytes))
        texts = (_text(raw[0], bool(out.cut)), _text(raw[1], bool(err.cut)))
        return _result(self.command, body, texts, raw, missing)


def _text(raw: bytes, cut: bool) -> str:
    # Omit a character that the limit has split.
    return codecs.getincrementaldecoder("utf-8")("replace").decode(raw, final=not cut)
