"""The verification examples of `docs/webhooks.md` accept what a real server sends, and nothing else."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "sdk/python/tests"))

from server import KEY, Server  # noqa: E402

PAGE = (ROOT / "docs/webhooks.md").read_text()
Headers = dict[str, str]
Verify = Callable[[str, Headers, bytes], bool]


def block(language: str) -> str:
    """The only block of a language."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return str(found)


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Headers, bytes]]:
    """A secret, and the headers and the body of a request that a server has signed with it."""
    got: list[tuple[Headers, bytes]] = []
    arrived = threading.Event()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            got.append(({name.lower(): value for name, value in self.headers.items()}, body))
            arrived.set()
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    receiver = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    config = tmp_path_factory.mktemp("webhooks") / "isolet.toml"
    config.write_text('[webhooks]\nallow_networks = ["127.0.0.0/8"]\n')
    server = Server(ISOLET_CONFIG=str(config))
    try:
        headers = {"authorization": f"Bearer {KEY}"}
        with httpx.Client(base_url=server.url, headers=headers, trust_env=False, timeout=30) as http:
            url = f"http://127.0.0.1:{receiver.server_port}/"
            made = http.post("/v1/webhooks", json={"url": url}).raise_for_status().json()
            tested = http.post(f"/v1/webhooks/{made['id']}/test").raise_for_status().json()
        assert tested["status"] == 204, tested
        assert arrived.wait(60)
        yield made["secret"], *got[0]
    finally:
        server.end()
        receiver.shutdown()


def python(secret: str, headers: Headers, body: bytes) -> bool:
    scope: dict[str, object] = {}
    exec(compile(block("python"), "webhooks.md", "exec"), scope)
    verify = scope["verify"]
    assert callable(verify)
    return bool(verify(secret, headers, body))


def javascript(secret: str, headers: Headers, body: bytes) -> bool:
    call = f"""
{block("js")}
const {{ secret, headers, body }} = JSON.parse(process.env.CASE);
process.stdout.write(String(verify(secret, headers, Buffer.from(body, "utf8"))));
"""
    case = json.dumps({"secret": secret, "headers": headers, "body": body.decode()})
    command = ["node", "--input-type=module", "--eval", call]
    environment = {"PATH": os.environ["PATH"], "CASE": case}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return {"true": True, "false": False}[done.stdout]


# Promises: WH1.
@pytest.mark.parametrize("verify", [python, javascript])
def test_an_example_accepts_a_signed_request_and_refuses_a_forged_one(
    verify: Verify, sent: tuple[str, Headers, bytes]
) -> None:
    secret, headers, body = sent
    assert json.loads(body)["type"] == "webhook.test"
    assert verify(secret, headers, body)
    # A rotation sends two signatures.
    other = {**headers, "webhook-signature": f"v1,AAAA {headers['webhook-signature']}"}
    assert verify(secret, other, body)
    assert not verify(secret, headers, body.replace(b"webhook.test", b"webhook.best"))
    assert not verify(secret, {**headers, "webhook-id": "evt_0"}, body)
    assert not verify(secret, {**headers, "webhook-timestamp": "1614265330"}, body)
    assert not verify(secret, {**headers, "webhook-signature": "v1,AAAA"}, body)
    assert not verify("whsec_" + "A" * 43 + "=", headers, body)


def test_the_page_names_every_event_that_the_server_sends() -> None:
    source = (ROOT / "crates/webhook/src/model/event.rs").read_text()
    events = re.findall(r'kind\("([a-z.]+)"', source)
    assert len(events) > 10
    for event in events:
        subject, name = event.split(".")
        assert re.search(rf"`{subject}\.|`{event}`", PAGE), event
        assert f"`{event}`" in PAGE or f"`.{name}`" in PAGE, event


def test_the_example_of_the_standard_has_the_signature_that_it_names() -> None:
    # The page shows the signature of the example of the specification.
    headers = {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    code = block("python").replace("> 300", "> 10**12")
    scope: dict[str, object] = {}
    exec(compile(code, "webhooks.md", "exec"), scope)
    verify = scope["verify"]
    assert callable(verify)
    assert verify("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", headers, b'{"test": 2432232314}')
