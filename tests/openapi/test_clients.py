"""Clients that other tools generate from the document work against a real server."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from document import DOCUMENT_PATH, ROOT
from server import KEY, Server

FOLDER = Path(__file__).resolve().parent
PACKAGE = "isolet_openapi_client"
#: The generator knows fewer media types than there are; these are bytes or text to it.
CONFIG = {
    "content_type_overrides": {
        "application/openmetrics-text": "text/plain",
        "application/x-asciicast": "application/octet-stream",
        "application/x-ndjson": "text/plain",
        "application/x-tar": "application/octet-stream",
    }
}


@pytest.fixture(scope="module")
def python_client(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Generate a package, and return its name once it can be imported."""
    folder = tmp_path_factory.mktemp("openapi-python-client")
    config = folder / "config.json"
    config.write_text(json.dumps({"package_name_override": PACKAGE, "post_hooks": [], **CONFIG}))
    generator = Path(sys.executable).with_name("openapi-python-client")
    arguments = ["generate", "--meta=none", "--fail-on-warning", f"--path={DOCUMENT_PATH}", f"--config={config}"]
    output = folder / "generated" / PACKAGE
    output.parent.mkdir()
    done = subprocess.run([generator, *arguments, f"--output-path={output}"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    sys.path.append(str(output.parent))
    return PACKAGE


def test_openapi_python_client_creates_runs_and_deletes(server: Server, python_client: str) -> None:
    client_module = importlib.import_module(python_client)
    models = importlib.import_module(f"{python_client}.models")
    sandboxes = f"{python_client}.api.sandboxes"
    create = importlib.import_module(f"{sandboxes}.sandboxes_create")
    get = importlib.import_module(f"{sandboxes}.sandboxes_get")
    delete = importlib.import_module(f"{sandboxes}.sandboxes_delete")
    execute = importlib.import_module(f"{python_client}.api.commands.sandboxes_exec")
    client = client_module.AuthenticatedClient(base_url=server.url, token=KEY)
    name = f"openapi-python-{os.getpid()}"

    created = create.sync_detailed(client=client, body=models.CreateSandbox(id=name))
    assert created.status_code == 201
    assert (created.parsed.id, created.parsed.state, created.parsed.ttl_s) == (name, "running", None)
    body = models.ExecRequest(command="echo out; echo err >&2; exit 3")
    ran = execute.sync(name, client=client, body=body)
    assert (ran.exit_code, ran.stdout, ran.stderr, ran.signal) == (3, "out\n", "err\n", None)
    deleted = delete.sync(name, client=client)
    assert deleted.state == "destroyed"
    gone = get.sync(name, client=client)
    assert isinstance(gone, models.Error)
    assert gone.error == "no_sandbox"


def test_openapi_typescript_and_openapi_fetch_create_run_and_delete(server: Server) -> None:
    tools = FOLDER / "node_modules/.bin"
    steps = [
        [tools / "openapi-typescript", DOCUMENT_PATH, "--output", FOLDER / "schema.d.ts"],
        [tools / "tsc", "--project", FOLDER],
        ["node", FOLDER / "generated/client.js"],
    ]
    environment = {**os.environ, "ISOLET_URL": server.url, "ISOLET_API_KEY": KEY}
    for step in steps:
        done = subprocess.run(step, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280)
        assert done.returncode == 0, done.stdout + done.stderr
