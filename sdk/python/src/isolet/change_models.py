"""Changes of files since a version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ChangedFile:
    """A path that changed since a version."""

    path: str  #: Absolute path in the sandbox.
    change: str  #: ``created``, ``modified`` or ``deleted``.
    type: str  #: ``file``, ``directory``, ``symlink`` or ``other``; of a deleted path, what it was.

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> ChangedFile:
        """Parse the server's JSON."""
        return cls(path=body["path"], change=body["change"], type=body["type"])


@dataclass(frozen=True)
class FileChanges:
    """Changes in a directory since a version."""

    version: str  #: The version to continue from.
    changes: tuple[ChangedFile, ...]  #: At most one for each path, sorted by path.
    more: bool  #: There are more changes: continue from ``version`` at once.

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> FileChanges:
        """Parse the server's JSON."""
        changes = tuple(ChangedFile.from_json(one) for one in body["changes"])
        return cls(version=body["version"], changes=changes, more=body["more"])
