"""One trace leads from a client's request to the agent and back, and a receiver that is gone slows nothing."""

from __future__ import annotations

import secrets
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from conftest import RECEIVER_KEY
from receiver import Receiver, Span
from server import KEY, Server, free_port

#: Must never be part of a span.
COMMAND = "sleep 0.2; echo secret-command $SECRET_NAME $TRACEPARENT"
ENV = {"SECRET_NAME": "secret-value"}


class Client:
    """The client of one trace."""

    def __init__(self, server: Server, flags: str = "01") -> None:
        self.trace = secrets.token_hex(16)
        self.span = secrets.token_hex(8)
        traceparent = f"00-{self.trace}-{self.span}-{flags}"
        headers = {"authorization": f"Bearer {KEY}", "traceparent": traceparent}
        self.http = httpx.Client(base_url=server.url, headers=headers, trust_env=False, timeout=60)

    def post(self, path: str, body: dict | None = None, **headers: str) -> httpx.Response:
        return self.http.post(path, json=body or {}, headers=headers).raise_for_status()

    def is_root(self, span: Span) -> bool:
        return span.parent == self.span


def one(spans: list[Span], name: str) -> Span:
    found = [span for span in spans if span.name == name]
    assert len(found) == 1, (name, [span.name for span in spans])
    return found[0]


def spans_of(receiver: Receiver, client: Client) -> list[Span]:
    """All spans of a trace with one request. The span of the request ends last."""
    return receiver.trace(client.trace, lambda found: any(map(client.is_root, found)))


def within(inner: Span, outer: Span) -> bool:
    return outer.start_ns <= inner.start_ns <= inner.end_ns <= outer.end_ns


@pytest.mark.parametrize("path", ["exec", "sessions/s/exec"])
def test_a_request_is_one_trace_from_the_client_to_the_agent(server: Server, receiver: Receiver, path: str) -> None:
    client = Client(server)
    name = f"box-{secrets.token_hex(4)}"
    answer = client.post(f"/v1/sandboxes/{name}/{path}", {"command": COMMAND, "env": ENV}).json()
    spans = spans_of(receiver, client)

    route = "/v1/sandboxes/{id}/" + path.replace("/s/", "/{sid}/")
    request = one(spans, f"POST {route}")
    assert client.is_root(request) and request.kind == "server" and not request.failed
    assert request.attributes["http.route"] == route
    assert request.attributes["http.response.status_code"] == 200
    assert request.attributes["isolet.tenant"] == "default"
    assert request.resource["service.name"] == "isolet-test"

    reach = one(spans, "reach")
    command = one(spans, "command")
    agent = one(spans, "agent")
    children = {span.name for span in spans if span.parent == request.id}
    assert children == {"authenticate", "reach", "command", "answer"}
    assert reach.attributes["isolet.sandbox"] == name
    assert one(spans, "create").parent == reach.id
    assert agent.parent == command.id
    assert len(spans) == 7
    assert all(within(span, request) for span in spans)
    assert within(agent, command) and within(one(spans, "create"), reach)
    order = [one(spans, name).start_ns for name in ["authenticate", "reach", "command", "agent", "answer"]]
    assert order == sorted(order)

    # The agent measured the time that the answer reports.
    assert agent.ms == pytest.approx(answer["duration_ms"], abs=0.01)
    assert agent.ms >= 200
    assert command.attributes["isolet.exit_code"] == 0
    word, value, traceparent = answer["stdout"].split()
    assert (word, value) == ("secret-command", "secret-value")
    assert traceparent == f"00-{client.trace}-{command.id}-01"


def test_no_trace_contains_commands_variables_or_keys(server: Server, receiver: Receiver) -> None:
    client = Client(server)
    client.post("/v1/sandboxes/quiet/exec", {"command": COMMAND, "env": ENV})
    spans_of(receiver, client)
    everything = b"".join(receiver.bodies)
    for secret in [b"secret-command", b"secret-value", b"SECRET_NAME", b"sleep", KEY.encode(), RECEIVER_KEY.encode()]:
        assert secret not in everything, secret
    assert all(headers["x-receiver-key"] == RECEIVER_KEY for headers in receiver.headers)


def test_a_sandbox_that_wakes_shows_it(server: Server, receiver: Receiver) -> None:
    Client(server, flags="00").post("/v1/sandboxes", {"id": "sleeper"})
    Client(server, flags="00").post("/v1/sandboxes/sleeper/sleep")
    client = Client(server)
    client.post("/v1/sandboxes/sleeper/exec", {"command": "exit 3"})
    spans = spans_of(receiver, client)
    assert one(spans, "wake").parent == one(spans, "reach").id
    assert one(spans, "command").attributes["isolet.exit_code"] == 3


def test_an_event_stream_is_part_of_the_trace(server: Server, receiver: Receiver) -> None:
    client = Client(server)
    body = {"command": "sleep 0.1; echo $TRACEPARENT"}
    answer = client.post("/v1/sandboxes/streamed/exec", body, accept="text/event-stream")
    spans = receiver.trace(client.trace, lambda found: any(span.name == "command" for span in found))
    command = one(spans, "command")
    assert f"00-{client.trace}-{command.id}-01" in answer.text
    assert one(spans, "agent").parent == command.id
    assert command.ms >= 100


def test_a_program_behind_a_port_continues_the_trace(server: Server, receiver: Receiver) -> None:
    program = (
        "from http.server import *\n"
        "class H(BaseHTTPRequestHandler):\n"
        "  def do_GET(self):\n"
        "    body = str(self.headers['traceparent']).encode()\n"
        "    self.send_response(200); self.send_header('content-length', str(len(body))); self.end_headers()\n"
        "    self.wfile.write(body)\n"
        "HTTPServer(('127.0.0.1', 8000), H).serve_forever()\n"
    )
    Client(server, flags="00").post("/v1/sandboxes/web/processes", {"argv": ["python3", "-c", program]})
    until = time.monotonic() + 60
    while Client(server, flags="00").http.get("/v1/sandboxes/web/ports/8000/").status_code != 200:
        assert time.monotonic() < until
        time.sleep(0.1)
    client = Client(server)
    text = client.http.get("/v1/sandboxes/web/ports/8000/").raise_for_status().text
    spans = spans_of(receiver, client)
    port = one(spans, "port")
    assert text == f"00-{client.trace}-{port.id}-01"
    assert port.kind == "client" and port.attributes["isolet.port"] == 8000
    # A client that does not sample is passed on as it is.
    client = Client(server, flags="00")
    text = client.http.get("/v1/sandboxes/web/ports/8000/").raise_for_status().text
    assert text == f"00-{client.trace}-{client.span}-00"


def test_only_sampled_requests_are_traced(server: Server, receiver: Receiver) -> None:
    unsampled = Client(server, flags="00")
    answer = unsampled.post("/v1/sandboxes/plain/exec", {"command": "echo =$TRACEPARENT="}).json()
    assert answer["stdout"] == "==\n"
    headers = {"authorization": f"Bearer {KEY}"}
    httpx.get(f"{server.url}/v1/sandboxes", headers=headers, trust_env=False).raise_for_status()
    sampled = Client(server)
    sampled.http.get("/v1/sandboxes").raise_for_status()
    spans_of(receiver, sampled)
    assert all(span.trace != unsampled.trace for span in receiver.spans)
    # Every trace began at a client, since the ratio of this server is 0.
    assert all(span.parent for span in receiver.spans)


def test_a_failed_request_is_marked(server: Server, receiver: Receiver) -> None:
    client = Client(server)
    client.http.headers["authorization"] = "Bearer wrong"
    assert client.http.get("/v1/sandboxes").status_code == 401
    spans = spans_of(receiver, client)
    assert {span.name for span in spans} == {"GET", "authenticate"}
    assert one(spans, "GET").attributes["http.response.status_code"] == 401


def connections_to(listener: socket.socket) -> int:
    """The connections that wait at a listener."""
    listener.setblocking(False)
    count = 0
    while True:
        try:
            listener.accept()
        except BlockingIOError:
            return count
        count += 1


def test_traces_are_off_by_default() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        # The usual variables of OpenTelemetry do not turn it on.
        endpoint = f"http://127.0.0.1:{listener.getsockname()[1]}"
        server = Server(OTEL_EXPORTER_OTLP_ENDPOINT=endpoint, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=endpoint)
        try:
            client = Client(server)
            answer = client.post("/v1/sandboxes/off/exec", {"command": "echo =$TRACEPARENT="}).json()
            assert answer["stdout"] == "==\n"
            time.sleep(3)
            assert connections_to(listener) == 0
        finally:
            server.end()


@pytest.mark.parametrize("kind", ["silent", "closed"])
def test_a_dead_receiver_slows_no_request_and_is_logged_once(kind: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1] if kind == "silent" else free_port()
        server = Server(ISOLET_OTLP_ENDPOINT=f"http://127.0.0.1:{port}")
        try:
            headers = {"authorization": f"Bearer {KEY}"}
            with httpx.Client(base_url=server.url, headers=headers, trust_env=False, timeout=60) as http:
                http.post("/v1/sandboxes", json={"id": "busy"}).raise_for_status()

                def command(number: int) -> float:
                    began = time.monotonic()
                    path = f"/v1/sandboxes/busy/sessions/s{number % 4}/exec"
                    http.post(path, json={"command": ":"}).raise_for_status()
                    return time.monotonic() - began

                # More spans than the queue holds.
                with ThreadPoolExecutor(4) as pool:
                    times = sorted(pool.map(command, range(900)))
            # Spans are collected for a second, and the export to a receiver that is silent takes ten.
            assert times[len(times) // 2] < 0.9, times[-5:]
            assert times[-1] < 9, times[-5:]
            log = server.log
            until = time.monotonic() + 30
            while "spans were not exported" not in log.read_text():
                assert time.monotonic() < until
                time.sleep(0.1)
            time.sleep(3)
            assert log.read_text().count("spans were not exported") == 1
        finally:
            server.end()


def test_keys_in_the_environment_are_refused(server: Server, tmp_path: Path) -> None:
    env = {"OTEL_EXPORTER_OTLP_HEADERS": "authorization=secret-value", "PATH": "/usr/bin"}
    command = [server.program, "serve", "--otlp-endpoint", "http://127.0.0.1:1", "--data-dir", tmp_path]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 1
    assert "otlp_headers_file" in done.stderr and "secret-value" not in done.stderr
