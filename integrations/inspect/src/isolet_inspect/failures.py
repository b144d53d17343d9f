"""The exceptions that Inspect expects, for the errors of the SDK."""

from __future__ import annotations

import errno

from inspect_ai.util import SandboxUnavailableError
from isolet import (
    ForbiddenError,
    IsoletError,
    NotFoundError,
    UnauthorizedError,
    UnreachableError,
)

_ERRNO = {"not_found": errno.ENOENT, "denied": errno.EACCES, "is_directory": errno.EISDIR}


def file_error(error: IsoletError, file: str, is_directory: bool) -> Exception:
    """Convert an error of a file request. ``OSError`` picks its subclass by the error number."""
    if isinstance(error, UnreachableError):
        return TimeoutError(str(error)) if error.code == "timeout" else ConnectionError(str(error))
    code = "is_directory" if is_directory else error.code
    if code == "wrong_kind" or (code == "exists" and not is_directory):
        return NotADirectoryError(errno.ENOTDIR, error.message, file)
    if code in _ERRNO:
        return OSError(_ERRNO[code], error.message, file)
    return error


def exec_error(error: IsoletError) -> Exception:
    """Convert an error of a command that did not start."""
    if isinstance(error, ForbiddenError) and error.code == "denied":
        return PermissionError(errno.EACCES, error.message)
    lost = isinstance(error, NotFoundError | UnauthorizedError | ForbiddenError)
    not_sent = isinstance(error, UnreachableError) and error.code == "unreachable"
    if lost or not_sent or error.code == "sandbox_destroyed":
        return SandboxUnavailableError(str(error))
    return error
