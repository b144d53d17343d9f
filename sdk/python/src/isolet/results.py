"""What a command says, piece by piece, and how it ended."""

from __future__ import annotations

import base64
import codecs
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .errors import CommandError
from .models import Denied, LostState

#: Kept of each stream for an :class:`ExecResult`, in bytes, unless told.
OUTPUT_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True)
class Output:
    """A piece of what a command writes."""

    stream: str  #: ``stdout`` or ``stderr``.
    text: str  #: Never splits a character; U+FFFD for what is no UTF-8.
    data: bytes = field(repr=False)  #: The exact bytes that have come.
    offset: int  #: Of the first byte, among all that the shell or program wrote to this stream.
    missed: int = 0  #: Bytes before it that are no longer held.


@dataclass(frozen=True)
class Truncated:
    """Bytes that a command wrote and that are not in its result."""

    stdout: int
    stderr: int


@dataclass(frozen=True)
class ExecResult:
    """How a command ended, and what it said."""

    command: str
    exit_code: int  #: 128 and the signal where a signal ended it.
    stdout: str  #: U+FFFD for what is no UTF-8; exact in ``stdout_bytes``.
    stderr: str
    duration: float  #: Seconds from its start to its end.
    signal: int | None = None  #: That ended it.
    timed_out: bool = False  #: Its timeout ended it.
    cancelled: bool = False  #: Somebody cancelled it.
    oom: bool = False  #: The kernel killed something of the sandbox for memory meanwhile.
    session: str | None = None  #: Where it ran; ``None``: a program, or a private shell.
    fresh: bool = False  #: Its shell was opened in place of one that had ended.
    truncated: Truncated | None = None  #: What it wrote and is not here.
    #: In the first answer after the sandbox slept: what that has ended, of ``shells``, ``terminals``,
    #: ``processes``, ``files`` and ``shell_state``; ``None`` in all other answers.
    lost: tuple[str, ...] | None = None
    #: With ``shell_state`` in ``lost``: sessions whose shells do not come back as they were.
    lost_state: tuple[LostState, ...] = ()
    #: What was refused to the sandbox while it ran, whoever in it has tried; at most 64. Given to
    #: ``change_network`` as ``allow_add`` it is opened.
    denied: tuple[Denied, ...] = ()
    denied_lost: int = 0  #: How much more was refused.
    stdout_bytes: bytes = field(default=b"", repr=False)
    stderr_bytes: bytes = field(default=b"", repr=False)

    @property
    def ok(self) -> bool:
        """Its exit code is 0."""
        return self.exit_code == 0

    def check(self) -> ExecResult:
        """Itself when its exit code is 0.

        Raises:
            CommandError: its exit code is another one.
        """
        if not self.ok:
            raise CommandError(self)
        return self


def answered(command: str, told: Mapping[str, Any]) -> ExecResult:
    """The result that one JSON answer holds."""
    texts = [str(told.get(name, "")) for name in ("stdout", "stderr")]
    exact = [told.get(f"{name}_b64") for name in ("stdout", "stderr")]
    raw = [base64.b64decode(b64) if b64 else text.encode() for b64, text in zip(exact, texts, strict=True)]
    cut = told.get("truncated")
    missing = Truncated(cut["stdout_bytes"], cut["stderr_bytes"]) if cut else None
    return _result(command, told, (texts[0], texts[1]), (raw[0], raw[1]), missing)


def _result(
    command: str,
    told: Mapping[str, Any],
    texts: tuple[str, str],
    raw: tuple[bytes, bytes],
    missing: Truncated | None,
) -> ExecResult:
    lost = told.get("lost")
    return ExecResult(
        command=command,
        exit_code=told["exit_code"] if "exit_code" in told else told["code"],
        stdout=texts[0],
        stderr=texts[1],
        duration=told["duration_ms"] / 1000,
        signal=told.get("signal"),
        timed_out=told.get("timed_out", False),
        cancelled=told.get("cancelled", False),
        oom=told.get("oom", False),
        session=told.get("session"),
        fresh=bool(told.get("fresh")),
        truncated=missing,
        lost=None if lost is None else tuple(lost),
        lost_state=tuple(LostState.of(one) for one in told.get("lost_state") or ()),
        denied=tuple(Denied.of(one) for one in told.get("denied") or ()),
        denied_lost=told.get("denied_lost", 0),
        stdout_bytes=raw[0],
        stderr_bytes=raw[1],
    )


class _Kept:
    """One stream: what is kept of it, and the characters that are still open."""

    def __init__(self) -> None:
        self.bytes = bytearray()
        self.cut = 0
        self.texts = codecs.getincrementaldecoder("utf-8")("replace")

    def take(self, data: bytes, most: int) -> None:
        # Nothing is kept behind a hole.
        room = 0 if self.cut else most - len(self.bytes)
        self.bytes += data[: max(room, 0)]
        self.cut += len(data) - min(len(data), max(room, 0))


class Collector:
    """What one command has said so far. Keeps at most ``most`` bytes of each stream."""

    def __init__(self, command: str, most: int = OUTPUT_BYTES) -> None:
        self.command = command
        self.most = most
        self._streams = {"stdout": _Kept(), "stderr": _Kept()}

    def take(self, stream: str, offset: int, data: bytes) -> Output:
        """More has come."""
        kept = self._streams[stream]
        kept.take(data, self.most)
        return Output(stream, kept.texts.decode(data), data, offset)

    def miss(self, stream: str, start: int, end: int) -> Output:
        """Bytes of this stream will not come."""
        kept = self._streams[stream]
        kept.cut += end - start
        # What is open now is never closed.
        text = kept.texts.decode(b"", final=True)
        kept.texts.reset()
        return Output(stream, text, b"", end, missed=end - start)

    def rest(self) -> list[Output]:
        """At the end: characters that were left open."""
        texts = ((name, kept.texts.decode(b"", final=True)) for name, kept in self._streams.items())
        return [Output(name, text, b"", 0) for name, text in texts if text]

    def result(self, told: Mapping[str, Any]) -> ExecResult:
        """How it ended, of the fields that the server told."""
        out, err = self._streams["stdout"], self._streams["stderr"]
        # What was written in all; a shell tells it of streams alone that were written to.
        for kept, name in ((out, "out_bytes"), (err, "err_bytes")):
            if name in told:
                kept.cut = max(int(told[name]) - len(kept.bytes), 0)
        missing = Truncated(out.cut, err.cut) if out.cut or err.cut else None
        raw = (bytes(out.bytes), bytes(err.bytes))
        texts = (_text(raw[0], bool(out.cut)), _text(raw[1], bool(err.cut)))
        return _result(self.command, told, texts, raw, missing)


def _text(raw: bytes, cut: bool) -> str:
    # A character that a limit has split is left out, rather than shown as a wrong one.
    return codecs.getincrementaldecoder("utf-8")("replace").decode(raw, final=not cut)
