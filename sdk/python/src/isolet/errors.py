"""Exceptions that the SDK raises."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .results import ExecResult


class IsoletError(Exception):
    """Base class of all errors of this package.

    Attributes:
        code: machine-readable and stable across server versions, for example ``no_session``.
        message: what happened, and to which id.
        hint: what to do next; may be empty.
        status: HTTP status; 0 without a response.
        request_id: the request's id at the server or at a proxy in front of it; ``None`` if it sent none.
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
    """An argument is invalid. Nothing was sent."""


class UnreachableError(IsoletError):
    """The server did not answer, or the response broke off.

    The ``code`` is ``unreachable`` if nothing was sent, ``timeout`` if no response came in time, and
    ``cut`` if the connection broke. In the last two cases the request may have been carried out.
    """


class ShellClosedError(IsoletError):
    """The shell or its sandbox has ended; ``message`` says why."""


class TerminalClosedError(IsoletError):
    """The terminal is closed: its program has exited (``exited``), this client detached (``closed``), or it
    ended while the connection was lost (``no_terminal``).
    """


class CommandError(IsoletError):
    """A command exited with a code other than 0. Raised only by :meth:`ExecResult.check`."""

    def __init__(self, result: ExecResult) -> None:
        output = result.stderr.strip() or result.stdout.strip()
        message = f"{result.command[:200]!r} exited with code {result.exit_code}"
        if result.timed_out:
            message += " after its timeout"
        super().__init__(f"{message}: {output[-400:]}" if output else message, code="command_failed")
        #: The command's exit code and output.
        self.result = result


class GitError(IsoletError):
    """Cloning a repository failed: ``git_failed`` (``message`` has git's output), ``timeout`` or
    ``no_git``.
    """


class NotSupportedError(IsoletError):
    """A method that exists for compatibility with other services and that Isolet does not support;
    ``message``
    says why. Nothing was sent.
    """


class RefusedError(IsoletError):
    """The server answered with an error; ``status`` is at least 400."""


class BadRequestError(RefusedError):
    """400, 413, 416 or 422: the request is invalid. Sending it again fails again."""


class UnauthorizedError(RefusedError):
    """401: the key is wrong, revoked or expired."""


class ForbiddenError(RefusedError):
    """403: the key or the sandbox's user lacks permission."""


class NotFoundError(RefusedError):
    """404: the sandbox, session or file does not exist."""


class ConflictError(RefusedError):
    """409: the object exists already, or its state does not allow the request. 412: a file has changed.

    ``sandbox_destroyed`` and ``session_ended`` mean that the sandbox or session was deleted during the
    call. The SDK does not retry, since that would create a new one and run the call there.
    """


class TooManyRequestsError(RefusedError):
    """429: a limit is reached; ``hint`` says what to end first."""


class ServerError(RefusedError):
    """5xx: the server is full, is stopping, or failed."""


_BY_STATUS: Mapping[int, type[RefusedError]] = {
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    412: ConflictError,
    429: TooManyRequestsError,
}


def error_from_response(status: int, body: bytes, headers: Mapping[str, str]) -> RefusedError:
    """Convert an error response to an exception."""
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
    """The awaited event did not happen in time. The process or terminal keeps running."""


class ProcessEndedError(IsoletError):
    """The process ended before the awaited event happened."""
