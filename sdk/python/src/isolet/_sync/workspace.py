"""What a sandbox and its sessions can both do, beside their files."""
# Made by tools/make_sync.py from its async twin: change that one.

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from .. import git
from ..errors import NotSupportedError
from ..git import GitCheckout
from ..results import ExecResult
from ..values import AnyPath, Duration, Env
from .files import Files

_NO_STORE = "the server keeps no copies of directories"
_ARCHIVES = "keep what read_archive gives, and give it to write_archive"
_NO_MOUNTS = "buckets are not mounted: a sandbox has no way out, and no FUSE"


class Workspace(Files):
    """A sandbox, or one of its sessions."""

    def _program(self, argv: Sequence[str], env: Env, timeout: Duration) -> ExecResult:
        raise NotImplementedError

    def git_checkout(
        self,
        url: str,
        *,
        branch: str | None = None,
        target_dir: AnyPath | None = None,
        depth: int | None = None,
        timeout: Duration = 0,
    ) -> GitCheckout:
        """Clones a repository, by the git that is inside.

        Args:
            url: as git takes it. Credentials in an ``http`` or ``https`` address go to git by its
                environment: none are in its arguments, its output, or the clone.
            branch: branch or tag; what the repository's ``HEAD`` says unless told.
            target_dir: a directory that is not there, or empty; the repository's name in ``/workspace``
                (or where the session begins) unless told.
            depth: so many commits of the history; all of it unless told.
            timeout: seconds until it is ended; 0 (unless told) never.

        Raises:
            GitError: ``git_failed`` with what git said; ``timeout``; ``no_git``: there is none inside.
        """
        call = git.cloning(url, branch, target_dir, depth)
        return git.cloned(call, self._program(call.argv, call.env, timeout))

    def create_backup(
        self, dir: AnyPath, *, name: str | None = None, ttl: Duration | None = None
    ) -> NoReturn:
        """Always refused.

        Raises:
            NotSupportedError: the server keeps no copies of directories.
        """
        raise NotSupportedError(f"create_backup: {_NO_STORE}", code="not_supported", hint=_ARCHIVES)

    def restore_backup(self, backup: object) -> NoReturn:
        """Always refused.

        Raises:
            NotSupportedError: as of :meth:`create_backup`.
        """
        raise NotSupportedError(f"restore_backup: {_NO_STORE}", code="not_supported", hint=_ARCHIVES)

    def mount_bucket(self, bucket: str, path: AnyPath, **options: object) -> NoReturn:
        """Always refused.

        Raises:
            NotSupportedError: a sandbox has no way out, and no FUSE.
        """
        raise NotSupportedError(
            f"mount_bucket: {_NO_MOUNTS}", code="not_supported", hint="write the files instead"
        )

    def unmount_bucket(self, path: AnyPath) -> NoReturn:
        """Always refused.

        Raises:
            NotSupportedError: as of :meth:`mount_bucket`.
        """
        raise NotSupportedError(f"unmount_bucket: {_NO_MOUNTS}", code="not_supported")
