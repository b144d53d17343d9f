"""What a call is refused with, or ends with when nobody answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .results import ExecResult


class IsoletError(Exception):
    """Something was not done. Its subclasses say what kind of thing it was.

    Attributes:
        code: for programs, as ``no_session``; stays the same between versions of the server.
        message: for people: what happened, and to which id.
        hint: for people: what to do next; may be empty.
        status: of the HTTP answer; 0 when there was none.
        request_id: what the server, or a proxy before it, calls the request; ``None`` without a name.
    """

    def __init__(
        self, message: str, *, code: str, hint: str = "", status: int = 0, request_id: str | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.status = status
        self.request_id = request_id

    def __str__(self) -> str:
        return f"{self.message} ({self.code})" + (f": {self.hint}" if self.hint else "")


class UsageError(IsoletError, ValueError):
    """What was asked for makes no sense; nothing was sent."""


class UnreachableError(IsoletError):
    """The server did not answer, or its answer broke off.

    Its ``code`` is ``unreachable`` when nothing was sent, ``timeout`` when no answer came in time,
    and ``cut`` when the connection broke: what was asked for may have been done.
    """


class ShellClosedError(IsoletError):
    """The shell has ended, or its sandbox; ``message`` says the cause."""


class TerminalClosedError(IsoletError):
    """The terminal's program has ended (``exited``), it was left here (``closed``), or ended while the
    connection was lost (``no_terminal``)."""


class CommandError(IsoletError):
    """A command ended with another exit code than 0; raised by :meth:`ExecResult.check` alone."""

    def __init__(self, result: ExecResult) -> None:
        said = result.stderr.strip() or result.stdout.strip()
        message = f"{result.command[:200]!r} ended with {result.exit_code}"
        if result.timed_out:
            message += ", after its timeout"
        super().__init__(f"{message}: {said[-400:]}" if said else message, code="command_failed")
        #: How it ended, and what it said.
        self.result = result


class GitError(IsoletError):
    """A repository was not cloned: ``git_failed`` (``message`` is what git said), ``timeout``, ``no_git``."""


class NotSupportedError(IsoletError):
    """A call of other services that this server cannot carry out; ``message`` says why, and nothing was
    sent."""


class RefusedError(IsoletError):
    """The server answered, and did not do it. ``status`` is at least 400."""


class BadRequestError(RefusedError):
    """400, 413, 416 or 422: the request itself is wrong; sent again it is refused again."""


class UnauthorizedError(RefusedError):
    """401: the key is wrong, was revoked, or has ended."""


class ForbiddenError(RefusedError):
    """403: the key, or the sandbox's user, may not do this."""


class NotFoundError(RefusedError):
    """404: there is no such sandbox, session or file."""


class ConflictError(RefusedError):
    """409: something is there already, or in a state that does not allow it.

    ``sandbox_destroyed`` and ``session_ended``: what the call was in was deleted meanwhile. The call is
    not made again: that would create a new sandbox or session, and run it there.
    """


class TooManyRequestsError(RefusedError):
    """429: a limit is reached; ``hint`` says what to end first."""


class ServerError(RefusedError):
    """5xx: the server could not do it: it is full, stops, or something failed."""


_BY_STATUS: Mapping[int, type[RefusedError]] = {
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    429: TooManyRequestsError,
}


def refused(status: int, body: bytes, headers: Mapping[str, str]) -> RefusedError:
    """The error that an answer with a status of 400 or more stands for."""
    kind = _BY_STATUS.get(status, ServerError if status >= 500 else BadRequestError)
    text = body.decode(errors="replace")
    try:
        said = json.loads(text)
    except ValueError:
        said = None
    if not isinstance(said, dict):
        said = {"message": text[:400] or f"the server answered {status}"}
    return kind(
        str(said.get("message", text[:400])),
        code=str(said.get("error", "unknown")),
        hint=str(said.get("hint", "")),
        status=status,
        request_id=headers.get("x-request-id"),
    )


class WaitTimeoutError(IsoletError):
    """What was waited for did not come in its time. The process, or the terminal, runs on."""


class ProcessEndedError(IsoletError):
    """The process ended without what was waited for."""
