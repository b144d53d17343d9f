"""The committed OpenAPI document, and the server that the tests of this folder use."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT_PATH = ROOT / "docs/openapi.json"
METHODS = ("get", "put", "post", "delete", "patch", "head", "options")

Json = dict[str, Any]


class Operation(NamedTuple):
    """An operation and where it stands."""

    path: str
    method: str
    body: Json

    @property
    def name(self) -> str:
        """How a failure names it."""
        return f"{self.method.upper()} {self.path}"


def load() -> Json:
    """Read the committed document."""
    document: Json = json.loads(DOCUMENT_PATH.read_text())
    return document


def operations(document: Json) -> Iterator[Operation]:
    """All operations of a document."""
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item:
                yield Operation(path, method, item[method])
