"""Images: root file systems that sandboxes start from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from .models import time_from_ms


@dataclass(frozen=True)
class ImageInfo:
    """An image of the key's tenant."""

    digest: str
    names: tuple[str, ...]  #: The names that the tenant has for it.
    owner: str  #: The tenant that it belongs to.
    source: str  #: Where it comes from: ``registry``, ``archive`` or ``snapshot``.
    unpacked_bytes: int
    layers: int
    on_host: bool  #: Its lowest layer is the programs of the server's machine.
    workspace: bool  #: Its sandboxes start with files in their workspace.
    shells: bool  #: Its sandboxes start with sessions and the saved states of their shells.
    created_at: datetime  #: When it was pulled, imported or made.

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> ImageInfo:
        """Parse the server's JSON."""
        return cls(**_fields(body))


@dataclass(frozen=True)
class PrivateFile:
    """A file in an image that usually holds secrets, found by its name."""

    path: str
    kind: str  #: ``credentials`` or ``history``.


@dataclass(frozen=True)
class CommittedImage(ImageInfo):
    """An image that was made from a snapshot."""

    name: str  #: The name under which it was recorded, in full.
    snapshot: str  #: The id of the snapshot.
    warnings: tuple[PrivateFile, ...]  #: Files that usually hold secrets; at most 100.
    warnings_total: int  #: How many such files there are.

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> CommittedImage:
        """Parse the server's JSON."""
        return cls(
            **_fields(body),
            name=body["name"],
            snapshot=body["snapshot"],
            warnings=tuple(PrivateFile(one["path"], one["kind"]) for one in body["warnings"]),
            warnings_total=body["warnings_total"],
        )


def _fields(body: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "digest": body["digest"],
        "names": tuple(body["names"]),
        "owner": body["owner"],
        "source": body["source"],
        "unpacked_bytes": body["unpacked_bytes"],
        "layers": body["layers"],
        "on_host": body["on_host"],
        "workspace": body["workspace"],
        "shells": body.get("shells", False),
        "created_at": time_from_ms(body["pulled_at_ms"]),
    }
