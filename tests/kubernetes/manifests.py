"""Reads the manifests, and checks them against the schemas of Kubernetes."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "packaging/kubernetes"
#: The oldest and the newest version of Kubernetes whose schemas the package has.
OLDEST, NEWEST = "1.28.0", "1.37.0"


class StrictLoader(yaml.SafeLoader):
    """Refuses a key that occurs twice in one mapping, of which YAML keeps the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=deep) for key, _ in node.value]
        if len(keys) != len(set(keys)):
            raise yaml.constructor.ConstructorError(None, None, "a key occurs twice", node.start_mark)
        return super().construct_mapping(node, deep=deep)


@cache
def objects() -> dict[str, dict[str, Any]]:
    """The object of each file, by the file's name without its ending."""
    return {path.stem: yaml.load(path.read_text(), StrictLoader) for path in sorted(FOLDER.glob("*.yaml"))}


def check(manifest: dict[str, Any], version: str) -> None:
    """Fails unless the object has exactly fields that this version of Kubernetes knows."""
    kubernetes_validate.validate(manifest, version, strict=True)


def pod() -> dict[str, Any]:
    """The description of a node's pod."""
    return objects()["daemon-set"]["spec"]["template"]["spec"]


def server() -> dict[str, Any]:
    """The container of the server."""
    return pod()["containers"][0]
