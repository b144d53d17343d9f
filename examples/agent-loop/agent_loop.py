#!/usr/bin/env python3
"""Runs typical commands of an agent's loop on real code, and measures the time of each.

Copies a git repository and a Python package with its test suite into a sandbox. In one shell session
it then reads, searches, edits, builds and tests. Uses only the standard library.

    python3 examples/agent-loop/agent_loop.py

Without arguments, the repository is the checkout that contains this file, and the package is a small one that
the script writes. Set ISOLET_URL (default: http://127.0.0.1:7300), and the key in ISOLET_API_KEY or in the file
ISOLET_DATA_DIR/key. Exits with 1 if a command's exit code is not the expected one.
"""

import argparse
import http.client
import io
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tarfile
import time
import urllib.parse


CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
COUNT = "x=$((${x:-0} + 1)); echo $x"


class Isolet:
    """A persistent connection to a server."""

    def __init__(self, url, key):
        parts = urllib.parse.urlsplit(url)
        self.connection = http.client.HTTPConnection(parts.hostname, parts.port or 80, timeout=300)
        self.key = key

    def call(self, method, path, body=None, raw=None):
        headers = {"Authorization": "Bearer " + self.key}
        data = raw
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        elif raw is not None:
            headers["Content-Type"] = "application/octet-stream"
        try:
            self.connection.request(method, path, body=data, headers=headers)
            answer = self.connection.getresponse()
        except OSError as error:
            raise SystemExit("no response from %s:%d: %s" % (self.connection.host, self.connection.port, error))
        text = answer.read()
        if answer.status >= 300:
            raise SystemExit("%s %s: %d %s" % (method, path, answer.status, text.decode(errors="replace")))
        return json.loads(text) if text else None


class Loop:
    """Runs the commands of one session and records their durations."""

    def __init__(self, server, sandbox, quiet):
        self.server, self.sandbox, self.quiet = server, sandbox, quiet
        self.times = []
        self.failed = 0

    def run(self, command, expect=0, contains=None):
        path = "/v1/sandboxes/%s/sessions/agent/exec" % self.sandbox
        begun = time.perf_counter()
        answer = self.server.call("POST", path, {"command": command, "timeout_ms": 240000})
        took = (time.perf_counter() - begun) * 1000
        code = answer["exit_code"]
        output = answer["stdout"] + answer["stderr"]
        good = code == expect and (contains is None or contains in output)
        self.times.append((took, command))
        if not self.quiet or not good:
            print("%4d  %9.2f ms  exit %-3d %s" % (len(self.times), took, code, command.splitlines()[0][:100]))
        if not good:
            self.failed += 1
            print("      expected exit %d%s; output:\n%s" % (expect, " and %r" % contains if contains else "", output[-2000:]))
        return answer["stdout"]


def key_of():
    """Reads the key from the environment or from the server's data directory."""
    key = os.environ.get("ISOLET_API_KEY")
    if key:
        return key
    file = os.path.join(os.environ.get("ISOLET_DATA_DIR", "/var/lib/isolet"), "key")
    try:
        with open(file) as text:
            return text.read().strip()
    except OSError as error:
        raise SystemExit("no key: set ISOLET_API_KEY, or set ISOLET_DATA_DIR to the server's data directory (%s)" % error)


def packed(files, mode):
    """Packs contents by path into a tar archive."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=mode) as archive:
        for path, content in files.items():
            about = tarfile.TarInfo(path)
            about.size = len(content)
            archive.addfile(about, io.BytesIO(content))
    return packed.getvalue()


def packed_repository(path):
    """Packs the repository with its history into a tar archive."""
    # The checkout may belong to another user than the one who runs this.
    command = ["git", "-c", "safe.directory=*", "-C", path, "bundle", "create", "-", "HEAD"]
    done = subprocess.run(command, capture_output=True)
    if done.returncode != 0:
        error = done.stderr.decode(errors="replace").strip()
        raise SystemExit("%s is not a git repository with a commit; name one with --repo (%s)" % (path, error))
    return packed({"repo.bundle": done.stdout}, "w")


class Idna:
    """The Python package idna, with its own tests."""

    module = "idna"
    tests = ["tests.test_idna_uts46", "tests.test_idna", "tests.test_idna_codec", "tests.test_intranges"]
    breaking = "sed -i 's/def check_hyphen_ok(label: str) -> bool:/&\\n    return True/' idna/core.py"
    broken_file, broken_test = "idna/core.py", "tests.test_idna"


class Small:
    """A package of two modules that needs no download."""

    module = "words"
    tests = ["tests.test_count", "tests.test_titles"]
    # Another length, because Python compares compiled files by time in seconds and length.
    breaking = "sed -i 's/text.lower()/text/' words/count.py"
    broken_file, broken_test = "words/count.py", "tests.test_count"
    files = {
        "words-1.0/words/__init__.py": b"",
        "words-1.0/words/count.py": b"def count(text):\n    words = text.lower().split()\n    return {word: words.count(word) for word in words}\n",
        "words-1.0/words/titles.py": b"def title(text):\n    return ' '.join(word.capitalize() for word in text.split())\n",
        "words-1.0/tests/__init__.py": b"",
        "words-1.0/tests/test_count.py": b"import unittest\nfrom words.count import count\n\nclass Count(unittest.TestCase):\n    def test_case_does_not_matter(self):\n        self.assertEqual(count('a B b'), {'a': 1, 'b': 2})\n",
        "words-1.0/tests/test_titles.py": b"import unittest\nfrom words.titles import title\n\nclass Titles(unittest.TestCase):\n    def test_each_word(self):\n        self.assertEqual(title('the end'), 'The End')\n",
    }


def read_around(loop):
    """Commands of an agent that explores an unknown repository."""
    loop.run("cd /workspace/repo && pwd", contains="/workspace/repo")
    loop.run("git log --oneline | head -5")
    loop.run("git status --short")
    files = loop.run("git ls-files | grep '\\.rs$' | sort").split()
    loop.run("wc -l $(git ls-files | grep '\\.rs$') | sort -n | tail -5")
    for file in files[:30]:
        loop.run("head -3 '%s'" % file, contains="//!")
    for word in ["unsafe", "fn main", "pub struct", "Invariant", "impl Drop", "const .*_MAX", "#\\[test\\]"]:
        loop.run("grep -rn --include='*.rs' '%s' . | wc -l" % word)
    loop.run("export REVIEW=/workspace/review.md; echo '# Review' > $REVIEW")
    for file in files[:12]:
        loop.run("printf '%%s %%s\\n' '%s' $(wc -l < '%s') >> $REVIEW" % (file, file))
    loop.run("tail -n +2 $REVIEW | wc -l", contains="12")


def edit(loop):
    """Edits that depend on the shell's state, and their reversal."""
    loop.run("git config user.email agent@localhost && git config user.name agent")
    loop.run("git checkout -q -b agent/headers")
    loop.run("first=$(git ls-files | grep '\\.rs$' | head -1); echo $first")
    loop.run("sed -i '1s/$/ (read by an agent)/' \"$first\" && git diff --stat", contains="1 file changed")
    loop.run("git commit -qam 'note' && git log -1 --format=%s", contains="note")
    loop.run("git revert --no-edit HEAD >/dev/null && git diff HEAD~2 --stat", contains="")
    loop.run("todo() { grep -c \"$1\" \"$2\" || true; }")
    loop.run("todo nothing-like-this ARCHITECTURE.md", contains="0")


def build_and_test(loop, package):
    """Runs a package's test suite, before and after a change that breaks it."""
    loop.run("cd /workspace/package && ls")
    loop.run("git init -q . && git add -A && git -c user.email=a@b -c user.name=a commit -qm import")
    loop.run("python3 -m compileall -q %s" % package.module, contains="")
    for name in package.tests:
        loop.run("python3 -m unittest %s 2>&1 | tail -1" % name, contains="OK")
    loop.run(package.breaking + " && git diff --stat", contains=package.broken_file)
    loop.run("python3 -m unittest %s 2>&1 | tail -1" % package.broken_test, contains="FAILED")
    loop.run("git checkout -q %s && git status --short" % package.broken_file, contains="")
    loop.run("python3 -m unittest %s 2>&1 | tail -1" % package.broken_test, contains="OK")
    loop.run("cat > /tmp/first.c <<'EOF'\n#include <stdio.h>\nint main(void) { puts(\"built\"); return 0; }\nEOF")
    if loop.run("command -v cc || true"):
        loop.run("cc -o /tmp/first /tmp/first.c && /tmp/first", contains="built")
    for count in range(20):
        loop.run(COUNT, contains=str(count + 1))
    loop.run("(sleep 0.2; echo late > /tmp/late) & echo started", contains="started")
    loop.run("wait; cat /tmp/late", contains="late")
    loop.run("false", expect=1)
    loop.run("echo $?", contains="1")


def summary(loop, seconds):
    """Prints the durations; returns 1 if a command failed."""
    took = sorted(ms for ms, _ in loop.times)
    # Commands that start no process measure only the round trip to the shell.
    plain = [ms for ms, command in loop.times if command == COUNT]
    print("%d commands in %.1f s: median %.2f ms, fastest %.2f ms, p99 %.2f ms; %d that start no process: median %.2f ms; %d not as expected"
          % (len(took), seconds, statistics.median(took), took[0], took[int(len(took) * 0.99) - 1],
             len(plain), statistics.median(plain), loop.failed))
    return 1 if loop.failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repo", default=str(CHECKOUT), help="git repository with Rust code on disk; by default the checkout of this file")
    parser.add_argument("--package", help="source archive of the Python package idna, with its tests; by default a small package")
    parser.add_argument("--sandbox", default="agent-loop")
    parser.add_argument("--quiet", action="store_true", help="print only the summary and failures")
    parser.add_argument("--keep", action="store_true", help="do not delete the sandbox")
    args = parser.parse_args()
    url = os.environ.get("ISOLET_URL", "http://127.0.0.1:7300")
    server = Isolet(url, key_of())
    upload = "/v1/runs/%s/files/upload?path=" % args.sandbox
    server.call("POST", "/v1/sandboxes", {"id": args.sandbox})
    loop = Loop(server, args.sandbox, args.quiet)
    begun = time.perf_counter()
    try:
        server.call("POST", upload + "/workspace/repo.tar", raw=packed_repository(args.repo))
        archive = pathlib.Path(args.package).read_bytes() if args.package else packed(Small.files, "w:gz")
        server.call("POST", upload + "/workspace/package.tgz", raw=archive)
        loop.run("cd /workspace && tar xf repo.tar && git clone -q repo.bundle repo && ls repo")
        loop.run("mkdir package && tar xzf package.tgz -C package --strip-components=1")
        read_around(loop)
        edit(loop)
        build_and_test(loop, Idna if args.package else Small)
    finally:
        if not args.keep:
            server.call("DELETE", "/v1/sandboxes/" + args.sandbox)
    return summary(loop, time.perf_counter() - begun)


if __name__ == "__main__":
    sys.exit(main())
