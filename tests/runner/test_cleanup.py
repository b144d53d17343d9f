"""Kills a test run in the middle, and looks for everything that it has left, before and after the clean-up."""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request
from pathlib import Path

import cleanup
import leftovers

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(os.environ.get("ISOLET_PROGRAMS", ROOT / "target/programs"))
KEY = "key-of-a-server-of-a-killed-run"
WAIT_S_MAX = 60
CLONE_NEWNET = 0x40000000


def setUpModule() -> None:
    """Enter a network namespace: on a machine, only one server has an uplink."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


def run(*command: str | Path) -> str:
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def wait_until(what: str, done) -> object:
    until = time.monotonic() + WAIT_S_MAX
    while not (found := done()):
        if time.monotonic() > until:
            raise AssertionError(f"not in {WAIT_S_MAX} s: {what}")
        time.sleep(0.02)
    return found


class Server:
    """A server as the suites start it: with its own environment, and in a session of its own."""

    def __init__(self, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        self.data = folder / "data"
        environment = {
            "PATH": os.environ["PATH"],
            "ISOLET_API_KEY": KEY,
            "ISOLET_DATA_DIR": str(self.data),
            "ISOLET_LISTEN": self.url.removeprefix("http://"),
            "ISOLET_WARM_POOL_SIZE": "1",
        }
        with open(folder / "log", "wb") as log:
            program = [PROGRAMS / "isolet", "serve"]
            subprocess.Popen(program, stdout=log, stderr=log, env=environment, start_new_session=True)
        wait_until(f"{folder}/log: the server answers", self._answers)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=5):
                return True
        except OSError:
            return False

    def post(self, path: str, body: object) -> dict:
        headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=WAIT_S_MAX) as answer:
            return json.load(answer)

    def sandbox(self, **more: object) -> str:
        path = f"/v1/sandboxes/{self.post('/v1/sandboxes', more)['id']}"
        answer = self.post(f"{path}/sessions/default/exec", {"command": "setsid sleep 1000 >/dev/null 2>&1 & echo up"})
        assert answer["stdout"] == "up\n", answer
        return path


def tests_of_a_run() -> None:
    """What a test of each kind does, in a process of its own, which does not end."""
    folder = Path(tempfile.mkdtemp(prefix=f"isolet-test-{os.getpid()}-"))
    (folder / "data").mkdir()
    image = folder / "disk.img"
    with image.open("wb") as file:
        file.truncate(4 << 30)
    run("mkfs.ext4", "-q", image)
    run("mount", "-o", "loop", image, folder / "data")
    on_disk = Server(folder)
    on_disk.sandbox(disk_mib=64)
    scoped = on_disk.sandbox()
    on_disk.post(f"{scoped}/sessions", {"id": "one", "file_access": {"read": ["a"], "write": ["a"]}})
    on_disk.post(f"{scoped}/sessions/one/exec", {"command": "pwd"})
    on_disk.post(f"{scoped}/pause", {})
    if os.environ.get("WITH_NETWORK"):
        folder = Path(tempfile.mkdtemp(prefix="plain"))
        Server(folder).sandbox(network="open")
        bridge = "ip link add br0 type bridge; ip link add port0 type veth peer name eth0; exec sleep 1000"
        subprocess.Popen(["unshare", "--net", "env", "--ignore-environment", "sh", "-c", bridge], cwd=folder)
        # A daemon that has no environment, no arguments and no parent, such as a worker of a web server.
        with open(folder / "access.log", "wb") as log:
            start = "cd /; setsid sleep 1000 & exit"
            subprocess.run(["env", "--ignore-environment", "bash", "-c", start], stdout=log, check=True)
    print("ready", flush=True)
    time.sleep(1000)


def runner() -> None:
    """A run with one suite, until it is killed."""
    own = cleanup.Run()
    print(own.directory, flush=True)
    suite = subprocess.Popen([sys.executable, __file__, "tests"], env=own.environment(), start_new_session=True)
    print(suite.pid, flush=True)
    suite.wait()


class KilledRun:
    """A runner in the state in which all its tests run."""

    def __init__(self, test: unittest.TestCase, **environment: str) -> None:
        command = [sys.executable, __file__, "runner"]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}, start_new_session=True
        )
        test.addCleanup(cleaned)
        test.addCleanup(self.kill, with_suite=False)
        assert self._process.stdout
        self.directory = Path(self._process.stdout.readline().strip())
        self.suite = int(self._process.stdout.readline())
        assert self._process.stdout.readline() == "ready\n", "a suite has failed"

    def kill(self, with_suite: bool) -> None:
        """End the runner like a machine without memory does."""
        if with_suite:
            os.kill(self.suite, signal.SIGKILL)
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()


def on_machine() -> dict[str, set[str]]:
    """What a run must leave as it was."""
    processes = {path for path in Path("/proc").iterdir() if path.name.isdigit()}
    namespaces = set()
    for process in processes:
        try:
            namespaces |= {os.readlink(process / "ns" / kind) for kind in ("net", "mnt", "pid", "ipc", "user")}
        except OSError:
            continue
    return {
        "namespaces": namespaces,
        "mounts": {line.split(" ")[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()},
        "loop devices": set(run("losetup", "--list", "--noheadings", "--output", "BACK-FILE").split()),
        "links": {name for _, name in socket.if_nameindex()},
        "named namespaces": set(run("ip", "netns").splitlines()),
        "tables": set(run("nft", "list", "tables").splitlines()),
        "groups": {path for path, _, _ in os.walk(leftovers.CGROUPS) if "isolet" in path},
        "directories": set(os.listdir(tempfile.gettempdir())),
    }


def cleaned(*arguments: str | Path) -> tuple[int, str]:
    command = [sys.executable, Path(cleanup.__file__), *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=120, check=False)
    return done.returncode, done.stdout


class CleanUp(unittest.TestCase):
    def setUp(self) -> None:
        # The clean-up looks only here, not at other runs of this machine.
        place = tempfile.TemporaryDirectory(prefix="isolet-cleanup-")
        self.addCleanup(place.cleanup)
        self.addCleanup(os.environ.update, {"TMPDIR": os.environ.get("TMPDIR", "/tmp")})
        self.addCleanup(setattr, tempfile, "tempdir", tempfile.tempdir)
        os.environ["TMPDIR"] = tempfile.tempdir = place.name

    @unittest.skipUnless((PROGRAMS / "isolet").is_file(), f"no programs in {PROGRAMS}")
    def test_everything_of_a_killed_run_is_found_and_removed_and_nothing_of_a_living_one(self) -> None:
        living = KilledRun(self)
        before = on_machine()
        for with_suite in (True, False):
            with self.subTest(with_suite=with_suite):
                self.killed_beside(living, before, with_suite)

    def killed_beside(self, living: KilledRun, before: dict[str, set[str]], with_suite: bool) -> None:
        belongs = {(one.name, one.started) for one in leftovers.find([living.directory]) if one.kind == "process"}
        killed = KilledRun(self, WITH_NETWORK="1")
        self.assertEqual(cleaned("--check"), (0, "0 removed, 0 left\n"), "both live")
        more = on_machine()
        for kind in before:
            if kind != "named namespaces":
                self.assertTrue(before[kind] < more[kind], f"{kind}: the test would see nothing")
        killed.kill(with_suite)

        status, listed = cleaned("--check")
        self.assertEqual(status, 1)
        for kind in ("process", "control group", "interface isolet0", "table ip isolet", "mount", "loop device"):
            self.assertRegex(listed, f"(?m)^left: {kind}", kind)
        self.assertNotIn(str(living.directory), listed)
        started = time.monotonic()
        status, said = cleaned()
        print(f"\n{said.splitlines()[-1]}, in {time.monotonic() - started:.1f} s", flush=True)
        self.assertEqual(status, 0, said)
        self.assertIn(f"removed directory {killed.directory}\n", said)
        self.assertEqual(cleaned("--check"), (0, "0 removed, 0 left\n"))

        def differences() -> dict[str, set[str]]:
            after = on_machine()
            return {kind: after[kind] ^ before[kind] for kind in before if after[kind] != before[kind]}

        # The kernel removes namespaces and their interfaces some time after their last process.
        try:
            wait_until("the machine is as before", lambda: not differences())
        except AssertionError:
            self.assertEqual(differences(), {})
        after = {(one.name, one.started) for one in leftovers.find([living.directory]) if one.kind == "process"}
        self.assertEqual(after, belongs, "no process of the living run has ended")

    def test_a_process_is_known_by_its_environment_arguments_directory_or_files(self) -> None:
        own = cleanup.Run()
        self.addCleanup(own.close)
        inside = str(own.directory)
        beside = f"{inside}2"
        Path(beside).mkdir()
        cases = (
            ({"env": {"ISOLET_CONFIG": f"{inside}/a.toml"}}, True),
            ({"args": [f"--data={inside}"]}, True),
            ({"cwd": inside}, True),
            ({"stdout": f"{inside}/log"}, True),
            ({"env": {"PWD": inside, "OLDPWD": inside}}, False),
            ({"env": {"TMPDIR": beside}, "args": [beside], "cwd": beside}, False),
        )
        for case, belongs in cases:
            with self.subTest(case=case), open(case.get("stdout", os.devnull), "wb") as out:
                program = [sys.executable, "-c", "import time; time.sleep(1000)", *case.get("args", [])]
                child = subprocess.Popen(program, env=case.get("env", {}), cwd=case.get("cwd", "/"), stdout=out)
                found = {one.name for one in own.leftovers() if one.kind == "process"}
                child.kill()
                child.wait()
                self.assertEqual(str(child.pid) in found, belongs)

    def test_a_program_that_a_developer_starts_at_a_terminal_is_no_leftover(self) -> None:
        own = cleanup.Run()
        self.addCleanup(own.close)
        master, terminal = os.openpty()
        # As a shell: a session leader with the terminal, which has started a program.
        shell = "import fcntl as f, subprocess as s, termios; f.ioctl(0, termios.TIOCSCTTY, 0); s.run(['sleep', '99'])"
        child = subprocess.Popen(
            [sys.executable, "-c", shell], cwd=own.directory, env={}, stdin=terminal, start_new_session=True
        )
        children = Path(f"/proc/{child.pid}/task/{child.pid}/children")
        program = wait_until("its program runs", children.read_text)
        found = own.leftovers()
        os.kill(int(program), signal.SIGKILL)
        child.wait()
        os.close(master)
        os.close(terminal)
        self.assertEqual(found, [])

    def test_directories_of_tests_without_a_run_are_removed_when_the_test_is_gone(self) -> None:
        ended = subprocess.Popen(["true"])
        ended.wait()
        place = Path(tempfile.gettempdir())
        names = [f"isolet-test-{ended.pid}-a", f"isolet-agent-{ended.pid}-1", f"isolet-tree-{ended.pid}"]
        others = [f"isolet-test-{os.getpid()}-a", f"isolet-other-{ended.pid}", "isolet-test-x", "isolet-run-starting"]
        for name in names + others:
            (place / name).mkdir()
        # Too deep for a path, and for recursion.
        level = os.open(place / names[0], os.O_RDONLY)
        for _ in range(3000):
            os.mkdir("d", dir_fd=level)
            deeper = os.open("d", os.O_RDONLY, dir_fd=level)
            os.close(level)
            level = deeper
        os.close(level)
        status, said = cleaned()
        self.assertEqual(status, 0, said)
        self.assertEqual(sorted(path.name for path in place.iterdir()), sorted(others))

    def test_a_group_is_that_of_the_record_unless_the_directory_is_a_copy(self) -> None:
        data = Path(tempfile.mkdtemp())
        about = data.stat()
        record = f"boot x\ndevice {about.st_dev}\ninode {about.st_ino}\nborn 1.2\ngroups isolet-00000001\n"
        (data / "identity").write_text(record)
        self.assertEqual(leftovers._recorded_group(data), "isolet-00000001")
        (data / "identity").write_text(re.sub("inode .*", "inode 1", record))
        self.assertIsNone(leftovers._recorded_group(data))

    def test_what_is_left_after_the_tests_is_listed(self) -> None:
        own = cleanup.Run()
        self.assertEqual(own.leftovers(), [])
        (own.directory / ".tmpAbCdEf").mkdir()
        self.assertEqual([str(one) for one in own.leftovers()], [f"file {own.directory}/.tmpAbCdEf"])
        self.assertEqual(own.close(), [])
        self.assertFalse(own.directory.exists())


if __name__ == "__main__":
    {"runner": runner, "tests": tests_of_a_run}.get(sys.argv[-1], unittest.main)()
