"""Data about networks that the server takes and returns: rules, credentials, denials and traffic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Traffic:
    """Network traffic of a sandbox over its whole life, including packet headers."""

    sent_bytes: int  #: Bytes from the sandbox.
    received_bytes: int  #: Bytes to the sandbox.
    sent_packets: int  #: Packets from the sandbox.
    received_packets: int  #: Packets to the sandbox.
    refused: int  #: Denied packets, connections and DNS lookups.

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Traffic:
        """Parse the server's JSON."""
        return cls(
            sent_bytes=body["sent_bytes"],
            received_bytes=body["received_bytes"],
            sent_packets=body["sent_packets"],
            received_packets=body["received_packets"],
            refused=body["refused"],
        )


@dataclass(frozen=True)
class NetworkRules:
    """Destinations that a sandbox may connect to: everything in ``allow`` that is not in ``deny``.

    A rule is a host, ``*.`` plus a host, an IP address, a network such as ``10.0.0.0/8``, or ``*``; each
    may end in ``:PORT``. Each list holds at most 256 rules.

    Example:
        NetworkRules(allow=["*.example.com:443"], deny=["test.example.com"])
    """

    allow: Sequence[str] = ()
    deny: Sequence[str] = ()  #: Takes precedence over ``allow``.

    def to_json(self) -> dict[str, list[str]]:
        """Convert to the server's JSON."""
        return {"allow": list(self.allow), "deny": list(self.deny)}


@dataclass(frozen=True)
class Credential:
    """A secret that the egress proxy injects into a sandbox's requests to a host. The value is never visible
    inside the sandbox.

    Set ``header``, ``placeholder`` or both. The proxy sets ``header`` to the value; it replaces
    ``placeholder`` in headers that the sandbox sends. Without ``:PORT`` in ``host``, the proxy injects into
    TLS connections only.

    Example:
        Credential("api.example.com", token, header="Authorization")
    """

    host: str
    value: str = field(repr=False)
    header: str | None = None
    placeholder: str | None = None

    def to_json(self) -> dict[str, str]:
        """Convert to the server's JSON."""
        body = {"host": self.host, "value": self.value}
        body |= {} if self.header is None else {"header": self.header}
        return body | ({} if self.placeholder is None else {"placeholder": self.placeholder})


@dataclass(frozen=True)
class CredentialInfo:
    """An injected credential, without its value."""

    host: str
    header: str | None
    placeholder: str | None
    allowed: bool  #: The network rules allow the host.

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> CredentialInfo:
        """Parse the server's JSON."""
        return cls(body["host"], body.get("header"), body.get("placeholder"), body["allowed"])

    def selector(self) -> dict[str, str]:
        """JSON that selects this credential for removal."""
        selector = {"host": self.host, "header": self.header, "placeholder": self.placeholder}
        return {name: value for name, value in selector.items() if value is not None}


@dataclass(frozen=True)
class NetworkInfo:
    """A sandbox's network configuration."""

    mode: str  #: ``none`` (loopback only), ``open`` or ``rules``.
    allow: tuple[str, ...]
    deny: tuple[str, ...]
    profile: str | None  #: Profile that the rules come from; ``None`` after a change.
    credentials: tuple[CredentialInfo, ...] = ()  #: Injected credentials, without values.

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> NetworkInfo:
        """Parse the server's JSON."""
        credentials = tuple(CredentialInfo.from_json(one) for one in body.get("credentials", ()))
        return cls(body["mode"], tuple(body["allow"]), tuple(body["deny"]), body.get("profile"), credentials)


@dataclass(frozen=True)
class Denied:
    """Connections or DNS lookups of a sandbox that its network rules denied."""

    host: str  #: Host name if known, else the IP address.
    port: int | None  #: ``None`` for DNS lookups and for protocols without ports.
    protocol: str  #: ``tcp``, ``udp``, ``icmp``, ``dns``, or an IP protocol number.
    #: The matching ``deny`` rule; ``default`` if no rule allows it; otherwise the reason why no sandbox
    #: may connect: ``host``, ``private``, ``link-local``, …
    rule: str
    times: int  #: Number of attempts.

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Denied:
        """Parse the server's JSON."""
        return cls(body["host"], body.get("port"), body["protocol"], body["rule"], body["times"])

    def to_json(self) -> dict[str, Any]:
        """Convert to the server's JSON."""
        return {
            "host": self.host,
            "port": self.port,
            "protocol": self.protocol,
            "rule": self.rule,
            "times": self.times,
        }
