"""What a real server answers has the form that the document promises."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from document import Json, load
from jsonschema import Draft202012Validator
from server import KEY, Server

ID = "openapi-answers"


@pytest.fixture(scope="module")
def http(server: Server) -> Iterator[httpx.Client]:
    headers = {"authorization": f"Bearer {KEY}"}
    with httpx.Client(base_url=server.url, headers=headers, trust_env=False, timeout=60) as http:
        yield http
        http.delete(f"/v1/sandboxes/{ID}")


def test_the_document_is_served_without_a_key_and_is_the_committed_one(server: Server) -> None:
    served = httpx.get(f"{server.url}/v1/openapi.json", trust_env=False)
    assert served.status_code == 200
    assert served.json() == load()


#: Calls in the order in which they are made: method, path of the document, its values, and the body.
CALLS: list[tuple[str, str, dict[str, str], Json | None]] = [
    ("post", "/v1/sandboxes", {}, {"id": ID, "env": {"A": "b"}, "network": {"allow": ["example.com"]}}),
    ("get", "/v1/sandboxes", {}, None),
    ("get", "/v1/sandboxes/{id}", {}, None),
    ("patch", "/v1/sandboxes/{id}", {}, {"metadata": {"a": 1}, "ttl_s": 600}),
    ("get", "/v1/sandboxes/{id}/network", {}, None),
    ("patch", "/v1/sandboxes/{id}/network", {}, {"network": "none"}),
    ("post", "/v1/sandboxes/{id}/exec", {}, {"argv": ["printf", "a\\377"]}),
    ("post", "/v1/sandboxes/{id}/sessions", {}, {"id": "dev", "ttl_s": 60}),
    ("get", "/v1/sandboxes/{id}/sessions", {}, None),
    ("get", "/v1/sandboxes/{id}/sessions/{sid}", {"sid": "dev"}, None),
    ("post", "/v1/sandboxes/{id}/sessions/{sid}/exec", {"sid": "dev"}, {"command": "ls nothing"}),
    ("post", "/v1/sandboxes/{id}/processes", {}, {"id": "web", "command": "echo ready; sleep 60"}),
    ("get", "/v1/sandboxes/{id}/processes", {}, None),
    ("get", "/v1/sandboxes/{id}/processes/{process}", {"process": "web"}, None),
    ("post", "/v1/sandboxes/{id}/processes/{process}/wait", {"process": "web"}, {"log": {"text": "ready"}}),
    ("get", "/v1/sandboxes/{id}/processes/{process}/logs", {"process": "web"}, None),
    ("post", "/v1/sandboxes/{id}/processes/{process}/kill", {"process": "web"}, {"signal": "KILL"}),
    ("post", "/v1/sandboxes/{id}/contexts/{cid}/run", {"cid": "bash"}, {"code": "echo a; false"}),
    ("get", "/v1/sandboxes/{id}/contexts", {}, None),
    ("get", "/v1/sandboxes/{id}/contexts/{cid}", {"cid": "bash"}, None),
    ("post", "/v1/sandboxes/{id}/contexts/{cid}/interrupt", {"cid": "bash"}, None),
    ("post", "/v1/sandboxes/{id}/files", {}, {"op": "mkdir", "path": "folder"}),
    ("post", "/v1/sandboxes/{id}/files", {}, {"op": "exists", "path": "nothing"}),
    ("get", "/v1/sandboxes/{id}/files", {}, None),
    ("get", "/v1/sandboxes/{id}/files?search=x", {}, None),
    ("get", "/v1/sandboxes/{id}/ports", {}, None),
    ("post", "/v1/sandboxes/{id}/links", {}, {"port": 8080}),
    ("get", "/v1/sandboxes/{id}/links", {}, None),
    ("get", "/v1/sandboxes/{id}/terminals", {}, None),
    ("get", "/v1/sandboxes/{id}/recordings", {}, None),
    ("post", "/v1/tickets", {}, {"sandbox": ID, "use": "shell"}),
    ("post", "/v1/keys", {}, {"label": "openapi", "read_only": True, "ttl_s": 60}),
    ("get", "/v1/keys", {}, None),
    ("get", "/v1/keys/current", {}, None),
    ("get", "/v1/images", {}, None),
    ("get", "/v1/images/aliases", {}, None),
    ("post", "/v1/images/tag", {}, {"image": "never:1", "name": "tools:1"}),
    ("get", "/v1/runs", {}, None),
    ("get", "/v1/runs/{id}", {}, None),
    ("post", "/v1/runs/{id}/exec", {}, {"command": "echo a"}),
    ("get", "/v1/usage", {}, None),
    ("get", "/v1/network-profiles", {}, None),
    ("post", "/v1/sessions", {}, {"sandbox_id": ID}),
    ("get", "/v1/sessions", {}, None),
    ("get", "/v1/pool/stats", {}, None),
    ("get", "/health", {}, None),
    ("post", "/v1/sandboxes/{id}/sleep", {}, None),
    ("delete", "/v1/sandboxes/{id}", {}, None),
    ("get", "/v1/sandboxes/{id}", {}, None),
    ("get", "/v1/sandbox/{id}/running", {"id": "0"}, None),
]


def test_answers_have_the_documented_form(http: httpx.Client) -> None:
    document = load()
    for method, path, values, body in CALLS:
        url = path.format(**{"id": ID, **values})
        answer = http.request(method, url, json=body)
        responses = document["paths"][path.split("?")[0]][method]["responses"]
        response = responses.get(str(answer.status_code)) or responses[f"{answer.status_code // 100}XX"]
        schema = {**response["content"]["application/json"]["schema"], "components": document["components"]}
        errors = [f"{error.json_path}: {error.message}" for error in Draft202012Validator(schema).iter_errors(answer.json())]
        assert errors == [], f"{method} {url}: {answer.text}"

