"""Answers to writes of files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from .models import time_from_ms


@dataclass(frozen=True)
class SavedFile:
    """A file that was written."""

    path: str  #: Absolute path in the sandbox.
    size: int  #: In bytes.
    modified: datetime
    etag: str | None = None  #: Version of the file, for ``if_match`` of the next write.

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> SavedFile:
        """Parse the server's JSON."""
        modified = time_from_ms(body["modified_ms"])
        return cls(path=body["path"], size=body["size"], modified=modified, etag=body.get("etag"))
