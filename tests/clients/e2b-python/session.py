"""Makes every call of E2B's public Python client that this server answers, with its own methods."""

import asyncio
import os
import sys
import urllib.error
import urllib.request

from e2b import (
    AsyncSandbox,
    CommandExitException,
    FileNotFoundException,
    FilesystemEventType,
    FileType,
    InvalidArgumentException,
    NotFoundException,
    Sandbox,
    SandboxException,
    SandboxQuery,
    SandboxState,
    TimeoutException,
)
from e2b.sandbox.commands.command_handle import PtySize


def refused(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"it was not refused with {kind}")


def commands(sandbox):
    said = sandbox.commands.run("echo out; echo err >&2; pwd; echo $A", envs={"A": "1"})
    assert (said.stdout, said.stderr, said.exit_code) == ("out\n/home/user\n1\n", "err\n", 0), said
    error = refused(CommandExitException, lambda: sandbox.commands.run("exit 7"))
    assert error.exit_code == 7, error
    assert sandbox.commands.run("echo $HOME; pwd", user="root").stdout == "/root\n/root\n"
    assert sandbox.commands.run("pwd", cwd="/tmp").stdout == "/tmp\n"
    assert sandbox.commands.run("echo $GREETING").stdout == "hello\n"
    assert len(sandbox.commands.run("head -c 30000000 /dev/zero | tr '\\0' x").stdout) == 30_000_000
    seen = []
    sandbox.commands.run("printf ü; printf ö >&2", on_stdout=seen.append, on_stderr=seen.append)
    assert sorted(seen) == ["ö", "ü"], seen
    refused(TimeoutException, lambda: sandbox.commands.run("sleep 60", timeout=0.5))
    refused(Exception, lambda: sandbox.commands.run("true", user="nobody-known"))


def processes(sandbox):
    handle = sandbox.commands.run("sleep 60", background=True)
    listed = [one for one in sandbox.commands.list() if one.pid == handle.pid]
    assert listed[0].cmd == "/bin/bash" and listed[0].args == ["-l", "-c", "sleep 60"], listed
    assert sandbox.commands.kill(handle.pid)
    assert not sandbox.commands.kill(999_999)
    assert refused(CommandExitException, handle.wait).exit_code == -1
    cat = sandbox.commands.run("cat; echo end", background=True, stdin=True)
    sandbox.commands.send_stdin(cat.pid, "one\n")
    sandbox.commands.stream_input(cat.pid, ["two\n", b"three\n"])
    sandbox.commands.close_stdin(cat.pid)
    assert cat.wait().stdout == "one\ntwo\nthree\nend\n"
    line = "read x; echo got $x"
    first = sandbox.commands.run(line, background=True, stdin=True)
    second = sandbox.commands.connect(first.pid)
    assert second.pid == first.pid
    first.disconnect()
    sandbox.commands.send_stdin(second.pid, "it\n")
    assert second.wait().stdout == "got it\n"
    refused(NotFoundException, lambda: sandbox.commands.connect(999_999))
    refused(NotFoundException, lambda: sandbox.commands.send_stdin(999_999, "x"))


def terminal(sandbox):
    pty = sandbox.pty.create(PtySize(rows=24, cols=80), cwd="/tmp", envs={"B": "2"})
    sandbox.pty.resize(pty.pid, PtySize(rows=30, cols=100))
    sandbox.pty.send_stdin(pty.pid, b"stty size; echo $B; pwd; exit 3\n")
    shown = bytearray()
    error = refused(CommandExitException, lambda: pty.wait(on_pty=shown.extend))
    assert error.exit_code == 3, error
    text = shown.decode()
    assert "30 100" in text and "\n/tmp" in text.replace("\r", ""), text
    pty = sandbox.pty.create(PtySize(rows=24, cols=80))
    other = sandbox.pty.connect(pty.pid)
    pty.disconnect()
    assert other.pid == pty.pid and pty.pid in [one.pid for one in sandbox.commands.list()]
    sandbox.pty.stream_input(other.pid, [b"echo str", b"eam\n"])
    assert sandbox.pty.kill(other.pid)
    refused(CommandExitException, other.wait)
    assert not sandbox.pty.kill(other.pid)


def files(sandbox):
    data = bytes(range(256)) * 5000
    made = sandbox.files.write("a b/ü.bin", data)
    assert (made.path, made.name) == ("/home/user/a b/ü.bin", "ü.bin"), made
    assert sandbox.files.read("a b/ü.bin", format="bytes") == data
    assert b"".join(sandbox.files.read("a b/ü.bin", format="stream")) == data
    sandbox.files.write("text", "äöü")
    assert sandbox.files.read("text") == sandbox.files.read("/home/user/text", user="root") == "äöü"
    sandbox.files.write("stream", iter([b"x" * 100_000] * 10))
    assert sandbox.commands.run("wc -c < stream").stdout.strip() == "1000000"
    sandbox.files.write("gzip", "zipped" * 1000, gzip=True)
    assert sandbox.files.read("gzip", gzip=True) == "zipped" * 1000
    tagged = sandbox.files.write("tagged", "x", metadata={"author": "me", "stage": "1"})
    assert tagged.metadata == {"author": "me", "stage": "1"} == sandbox.files.get_info("tagged").metadata
    assert sandbox.files.rename("tagged", "renamed").metadata == tagged.metadata
    listed = {one.name: one.metadata for one in sandbox.files.list("/home/user")}
    assert listed["renamed"] == tagged.metadata and not listed["text"], listed
    assert not sandbox.files.write("renamed", "y").metadata
    assert not sandbox.files.get_info("renamed").metadata
    sandbox.files.write("empty", "")
    assert sandbox.files.read("empty") == ""
    both = sandbox.files.write_files(
        [{"path": "d/one", "data": "1"}, {"path": "/tmp/two", "data": b"2"}]
    )
    assert [one.path for one in both] == ["/home/user/d/one", "/tmp/two"], both
    info = sandbox.files.get_info("text")
    assert (info.type, info.size, info.permissions) == (FileType.FILE, 6, "-rw-r--r--"), info
    sandbox.commands.run("ln -s text link")
    link = sandbox.files.get_info("link")
    assert (link.type, link.symlink_target) == (FileType.FILE, "/home/user/text"), link
    assert sandbox.files.exists("text") and not sandbox.files.exists("nothing")
    assert sandbox.files.make_dir("m/n") and not sandbox.files.make_dir("m/n")
    refused(InvalidArgumentException, lambda: sandbox.files.make_dir("text"))
    assert {one.name for one in sandbox.files.list("m")} == {"n"}
    names = {one.path for one in sandbox.files.list("/home/user", depth=2)}
    assert {"/home/user/m/n", "/home/user/d/one", "/home/user/text"} <= names, names
    moved = sandbox.files.rename("text", "moved")
    assert moved.path == "/home/user/moved" and not sandbox.files.exists("text")
    sandbox.files.remove("m")
    sandbox.files.remove("m")
    for call in [
        lambda: sandbox.files.read("nothing"),
        lambda: sandbox.files.get_info("nothing"),
        lambda: sandbox.files.list("nothing"),
        lambda: sandbox.files.rename("nothing", "x"),
        lambda: sandbox.files.watch_dir("nothing"),
    ]:
        refused(FileNotFoundException, call)
    refused(InvalidArgumentException, lambda: sandbox.files.list("moved"))
    refused(InvalidArgumentException, lambda: sandbox.files.read("d"))


def watch(sandbox):
    sandbox.files.make_dir("w/sub")
    handle = sandbox.files.watch_dir("w", recursive=True)
    sandbox.files.write("w/sub/new", "x")
    events = []
    while (FilesystemEventType.WRITE, "sub/new") not in events:
        events += [(one.type, one.name) for one in handle.get_new_events()]
    assert events[0] == (FilesystemEventType.CREATE, "sub/new"), events
    sandbox.files.remove("w/sub/new")
    while (FilesystemEventType.REMOVE, "sub/new") not in events:
        events += [(one.type, one.name) for one in handle.get_new_events()]
    handle.stop()
    refused(SandboxException, handle.get_new_events)
    refused(SandboxException, lambda: sandbox.files.watch_dir("moved"))


def lifecycle(sandbox):
    assert sandbox.is_running()
    info = sandbox.get_info()
    assert (info.sandbox_id, info.template_id) == (sandbox.sandbox_id, "base"), info
    assert info.metadata == {"kind": "first & only"} and info.state == SandboxState.RUNNING
    sandbox.set_timeout(3000)
    assert (sandbox.get_info().end_at - info.started_at).total_seconds() > 2900
    assert sandbox.get_metrics()[0].mem_total > 0
    again = Sandbox.connect(sandbox.sandbox_id)
    assert again.commands.run("echo again").stdout == "again\n"
    sandbox.pause()
    assert not sandbox.is_running()
    state = SandboxQuery(state=[SandboxState.PAUSED])
    assert [one.sandbox_id for one in Sandbox.list(query=state).next_items()] == [sandbox.sandbox_id]
    refused(TimeoutException, lambda: sandbox.commands.run("true"))
    resumed = sandbox.connect()
    sandbox.update_network({"deny_out": lambda to: [to.all_traffic], "allow_out": ["192.0.2.1"]})
    sandbox.update_network({"allow_internet_access": False})
    assert resumed.is_running() and resumed.commands.run("echo back").stdout == "back\n"


def lists(first):
    others = [Sandbox.create(metadata={"kind": "other"}) for _ in range(3)]
    pages = Sandbox.list(query=SandboxQuery(metadata={"kind": "other"}), limit=2)
    one = pages.next_items()
    assert len(one) == 2 and pages.has_next
    two = pages.next_items()
    assert not pages.has_next
    ids = [info.sandbox_id for info in one + two]
    assert set(ids) == {other.sandbox_id for other in others}, ids
    query = SandboxQuery(metadata={"kind": "first & only"})
    assert [info.sandbox_id for info in Sandbox.list(query=query).next_items()] == [first.sandbox_id]
    assert all(other.kill() for other in others) and not others[0].kill()
    assert not others[0].is_running()


def copies(sandbox):
    sandbox.files.write("kept", "before")
    snapshot = sandbox.create_snapshot()
    from_it = Sandbox.create(snapshot.snapshot_id)
    assert from_it.files.read("kept") == "before"
    from_it.kill()


def signed(sandbox):
    """Fetches signed URLs with the header that a host name replaces elsewhere."""
    sandbox.files.write("signed", "signed")
    own = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "49983"}

    def fetch(url):
        return urllib.request.urlopen(urllib.request.Request(url, headers=own)).read()

    assert fetch(sandbox.download_url("signed")) == b"signed"
    assert fetch(sandbox.download_url("signed", "user", 120)) == b"signed"
    good = sandbox.download_url("signed", "user", 120)
    for bad in [
        good.replace("path=signed", "path=kept"),
        good.replace("username=user", "username=root"),
        good.replace("signature=v1_", "signature=v1_x"),
        good.replace("signature_expiration=", "signature_expiration=9"),
        sandbox.download_url("signed", "user", -120),
        sandbox.upload_url("signed", "user", 120),
        good.split("&signature")[0],
    ]:
        error = refused(urllib.error.HTTPError, lambda: fetch(bad))
        assert error.code == 401, (bad, error)


async def asynchronous():
    sandbox = await AsyncSandbox.create()
    said = await sandbox.commands.run("echo async")
    assert said.stdout == "async\n"
    arrived = asyncio.Event()
    await sandbox.files.make_dir("w")
    handle = await sandbox.files.watch_dir("w", on_event=lambda event: arrived.set())
    await sandbox.files.write("w/new", "x")
    await asyncio.wait_for(arrived.wait(), 30)
    await handle.stop()
    pty_output = bytearray()
    pty = await sandbox.pty.create(PtySize(24, 80), on_data=pty_output.extend)
    await sandbox.pty.send_stdin(pty.pid, b"echo a$((1+1))b; exit\n")
    await pty.wait()
    assert b"a2b" in pty_output, pty_output
    running = asyncio.create_task(sandbox.commands.run("sleep 60"))
    while len(await sandbox.commands.list()) == 0:
        pass
    await sandbox.kill()
    try:
        await running
        raise AssertionError("it ended well")
    except TimeoutException:
        pass


def refusals():
    for call in [
        lambda: Sandbox.create("no-such-image-anywhere"),
        lambda: Sandbox.create(lifecycle={"on_timeout": {"action": "pause", "keep_memory": False}}),
        lambda: Sandbox.connect("nosuchsandbox"),
        lambda: Sandbox.get_info("nosuchsandbox"),
    ]:
        error = refused(SandboxException, call)
        assert len(str(error)) > 20, error


def main():
    metadata = {"kind": "first & only"}
    sandbox = Sandbox.create(timeout=600, metadata=metadata, envs={"GREETING": "hello"})
    commands(sandbox)
    processes(sandbox)
    terminal(sandbox)
    files(sandbox)
    watch(sandbox)
    lifecycle(sandbox)
    lists(sandbox)
    copies(sandbox)
    signed(sandbox)
    assert sandbox.kill() and not Sandbox.kill(sandbox.sandbox_id)
    asyncio.run(asynchronous())
    refusals()
    assert os.environ["E2B_API_URL"] == os.environ["E2B_SANDBOX_URL"]
    print("all answered")


main()
# A thread of the client's HTTP library that takes the interpreter's lock while the interpreter ends aborts the
# process in some runs, with all calls answered. The end of the interpreter is not what is tested here.
sys.stdout.flush()
os._exit(0)
