"""Command lines: other users, and what is too large for one request."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from inspect_ai.util import SandboxUserUnsupportedError

#: Bytes of arguments and input that are sent within the request. Larger ones are written to files first:
#: the server accepts 1 MiB of arguments and 2 MiB of JSON, in which a byte may take six characters.
INLINE_BYTES = 128 * 1024

#: Writes standard input to a file, as the user that runs it. Exit code 21: the file is a directory.
WRITE_FILE = (
    'mkdir -p -- "$(dirname -- "$1")" || exit 1; if [ -d "$1" ]; then exit 21; fi; cat >"$1" || exit 1'
)
#: The exit code is 13 if the user that runs it may not read the file.
CHECK_READABLE = 'if [ -e "$1" ] && [ ! -r "$1" ]; then exit 13; fi'


@dataclass(frozen=True)
class OwnUser:
    """The user of a sandbox that runs commands which name no other: that of its image, else root."""

    uid: str
    name: str

    def run_as(self, argv: Sequence[str], user: str | None) -> list[str]:
        """Add what runs a command as another user, given by name or numeric id.

        Programs have absolute paths: the ``PATH`` of the sandbox may begin with directories of others.

        Raises:
            SandboxUserUnsupportedError: only root can become another user.
        """
        if user is None or user in (self.uid, self.name):
            return list(argv)
        if self.uid != "0":
            raise SandboxUserUnsupportedError(
                f"commands run as {self.name or self.uid}, the user of the image, and cannot become {user}"
            )
        if user.isdigit():
            return ["/usr/bin/setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--", *argv]
        return ["/bin/su", "-s", "/bin/sh", "-c", 'exec "$0" "$@"', "--", user, *argv]


def size(argv: Sequence[str], stdin: str | bytes | None) -> int:
    """Count the bytes of a command and its input."""
    text = stdin.encode() if isinstance(stdin, str) else stdin or b""
    return sum(len(word.encode()) + 1 for word in argv) + len(text)


def script(argv: Sequence[str], at: str, stdin_at: str | None) -> str:
    """Write a shell script that deletes itself and its input file and then becomes the command."""
    lines = [] if stdin_at is None else [f"exec <{shlex.quote(stdin_at)}"]
    files = [at] if stdin_at is None else [at, stdin_at]
    lines += [f"/bin/rm -f -- {shlex.join(files)}", f"exec {shlex.join(argv)}"]
    return "\n".join(lines) + "\n"
