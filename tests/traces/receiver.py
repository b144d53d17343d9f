"""A receiver of OTLP over HTTP, which decodes what it gets with OpenTelemetry's own messages."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

#: Time limit for spans to arrive, in seconds: the server collects them for one second.
_WAIT_S = 60.0
KINDS = {0: "unspecified", 1: "internal", 2: "server", 3: "client", 4: "producer", 5: "consumer"}


@dataclass
class Span:
    """A span as the receiver got it."""

    name: str
    trace: str
    id: str
    parent: str
    kind: str
    start_ns: int
    end_ns: int
    failed: bool
    attributes: dict[str, object]
    resource: dict[str, object]

    @property
    def ms(self) -> float:
        return (self.end_ns - self.start_ns) / 1e6


@dataclass
class Receiver:
    """Listens on a port of its own, and stores all spans."""

    spans: list[Span] = field(default_factory=list)
    #: The bodies of all requests, as they came.
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                assert self.path == "/v1/traces", self.path
                assert self.headers["content-type"] == "application/x-protobuf"
                receiver._store(body, {name.lower(): value for name, value in self.headers.items()})
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_response(200)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def _store(self, body: bytes, headers: dict[str, str]) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        found = []
        for of_resource in request.resource_spans:
            resource = _attributes(of_resource.resource.attributes)
            for of_scope in of_resource.scope_spans:
                found += [_span(span, resource) for span in of_scope.spans]
        self.bodies.append(body)
        self.headers.append(headers)
        self.spans += found

    def trace(self, trace: str, complete: Callable[[list[Span]], bool]) -> list[Span]:
        """The spans of a trace, by their start, as soon as they are complete."""
        until = time.monotonic() + _WAIT_S
        while True:
            found = sorted((span for span in self.spans if span.trace == trace), key=lambda span: span.start_ns)
            if complete(found):
                return found
            if time.monotonic() > until:
                raise AssertionError(f"only {[span.name for span in found]} of {trace} after {_WAIT_S} s")
            time.sleep(0.05)

    def end(self) -> None:
        self._http.shutdown()
        self._http.server_close()


def _attributes(all: object) -> dict[str, object]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in all}


def _span(span: object, resource: dict[str, object]) -> Span:
    return Span(
        name=span.name,
        trace=span.trace_id.hex(),
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        kind=KINDS[span.kind],
        start_ns=span.start_time_unix_nano,
        end_ns=span.end_time_unix_nano,
        failed=span.status.code == 2,
        attributes=_attributes(span.attributes),
        resource=resource,
    )


def tree(spans: list[Span], root: str) -> list[str]:
    """The spans below the id `root` as lines: indented name, start and duration in ms, attributes."""
    first = min(span.start_ns for span in spans)
    lines = []

    def add(parent: str, depth: int) -> None:
        for span in spans:
            if span.parent != parent:
                continue
            start = (span.start_ns - first) / 1e6
            known = ", ".join(f"{name}={value}" for name, value in span.attributes.items())
            lines.append(f"{'  ' * depth + span.name:<40} {start:9.3f} {span.ms:9.3f}  {known}".rstrip())
            add(span.id, depth + 1)

    add(root, 0)
    return lines
