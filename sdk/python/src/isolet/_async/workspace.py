"""Methods that sandboxes and sessions share, besides files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from .. import git
from ..errors import NotSupportedError
from ..git import GitCheckout
from ..results import ExecResult
from ..values import AnyPath, Duration, Env
from .files import AsyncFiles

_NO_STORE = "the server does not store backups of directories"
_ARCHIVES = "store the result of read_archive, and restore it with write_archive"
_NO_MOUNTS = "Isolet cannot mount buckets: sandboxes have no FUSE"


class AsyncWorkspace(AsyncFiles):
    """A sandbox or session."""

    async def _program(self, argv: Sequence[str], env: Env, timeout: Duration) -> ExecResult:
        raise NotImplementedError

    async def git_checkout(
        self,
        url: str,
        *,
        branch: str | None = None,
        target_dir: AnyPath | None = None,
        depth: int | None = None,
        timeout: Duration = 0,
    ) -> GitCheckout:
        """Clone a repository with the git in the sandbox.

        Args:
            url: address as for ``git clone``. Credentials in an ``http`` or ``https`` address are passed to
                git through its environment; they do not appear in its arguments, its output or the clone.
            branch: branch or tag; the repository's ``HEAD`` by default.
            target_dir: a new or empty directory; by default, the repository's name in ``/workspace`` or in
                the session's initial directory.
            depth: number of commits of history; all by default.
            timeout: seconds until the clone is aborted; 0 (default) disables it.

        Returns:
            branch, commit and directory of the clone.

        Raises:
            GitError: ``git_failed`` with git's output, ``timeout``, or ``no_git`` if the image has no git.
        """
        call = git.clone_call(url, branch, target_dir, depth)
        return git.checkout_from_result(call, await self._program(call.argv, call.env, timeout))

    async def create_backup(
        self, dir: AnyPath, *, name: str | None = None, ttl: Duration | None = None
    ) -> NoReturn:
        """Not supported; exists for compatibility.

        Raises:
            NotSupportedError: always.
        """
        raise NotSupportedError(f"create_backup: {_NO_STORE}", code="not_supported", hint=_ARCHIVES)

    async def restore_backup(self, backup: object) -> NoReturn:
        """Not supported; exists for compatibility.

        Raises:
            NotSupportedError: always.
        """
        raise NotSupportedError(f"restore_backup: {_NO_STORE}", code="not_supported", hint=_ARCHIVES)

    async def mount_bucket(self, bucket: str, path: AnyPath, **options: object) -> NoReturn:
        """Not supported; exists for compatibility.

        Raises:
            NotSupportedError: always.
        """
        raise NotSupportedError(
            f"mount_bucket: {_NO_MOUNTS}", code="not_supported", hint="write the files instead"
        )

    async def unmount_bucket(self, path: AnyPath) -> NoReturn:
        """Not supported; exists for compatibility.

        Raises:
            NotSupportedError: always.
        """
        raise NotSupportedError(f"unmount_bucket: {_NO_MOUNTS}", code="not_supported")
