"""Nodes of a fleet, and drains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Node:
    """A node of the fleet."""

    name: str
    region: str
    labels: Mapping[str, str]  #: A sandbox can demand them.
    state: str  #: ``ready``, ``suspect``, ``starting``, ``stopping``, ``lost`` or ``dead``.
    cordoned: bool  #: An operator has excluded it from placement.
    #: Address, version, capacity and load as the server sends them; only with a key of tenant ``default``.
    details: Mapping[str, Any] | None
    #: Sandboxes that it owns; only from ``node()`` with a key of the tenant ``default``.
    owned: Mapping[str, Any] | None

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Node:
        """Parse the server's JSON."""
        return cls(
            name=body["name"],
            region=body["region"],
            labels=body["labels"],
            state=body["state"],
            cordoned=body["cordoned"],
            details=body.get("details"),
            owned=body.get("owned"),
        )


@dataclass(frozen=True)
class NodeList:
    """The nodes of the fleet, sorted by name."""

    here: str  #: Name of the node that answered.
    is_current: bool  #: If false, that node has lost etcd, and the nodes are those that it knew before.
    nodes: tuple[Node, ...]

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> NodeList:
        """Parse the server's JSON."""
        nodes = tuple(Node.from_json(one) for one in body["nodes"])
        return cls(here=body["here"], is_current=body["is_current"], nodes=nodes)


@dataclass(frozen=True)
class DrainLeft:
    """A sandbox that a drain could not move."""

    sandbox: str  #: ``TENANT/ID``.
    code: str  #: Error code.
    reason: str


@dataclass(frozen=True)
class DrainProgress:
    """How far a drain is."""

    node: str
    running: bool  #: The drain still runs.
    total: int  #: Sandboxes that the node had when the drain began.
    moved: int  #: Sandboxes that were moved to another node.
    stored: int  #: Sandboxes that slept, and are only in the object store now.
    remaining: int  #: Sandboxes that are still on the node.
    left: tuple[DrainLeft, ...]  #: Those that could not be moved, the first 100.

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> DrainProgress:
        """Parse the server's JSON."""
        names = ("node", "running", "total", "moved", "stored", "remaining")
        left = tuple(DrainLeft(one["sandbox"], one["code"], one["reason"]) for one in body["left"])
        return cls(**{name: body[name] for name in names}, left=left)
