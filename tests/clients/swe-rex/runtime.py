"""Calls every method of SWE-ReX's unmodified `RemoteRuntime` against a server, and prints what failed."""

import asyncio
import logging
import os
import sys
import tempfile
from pathlib import Path

from swerex.exceptions import (
    BashIncorrectSyntaxError,
    CommandTimeoutError,
    NonZeroExitCodeError,
    SessionDoesNotExistError,
    SessionExistsError,
    SwerexException,
)
from swerex.runtime.abstract import (
    BashAction,
    BashInterruptAction,
    CloseBashSessionRequest,
    Command,
    CreateBashSessionRequest,
    ReadFileRequest,
    UploadRequest,
    WriteFileRequest,
)
from swerex.runtime.remote import RemoteRuntime

# It logs every exception that it raises.
logging.disable(logging.CRITICAL)


def runtime(sandbox, key):
    host = f"{os.environ['ISOLET_URL']}/v1/swerex/{sandbox}"
    return RemoteRuntime(host=host, auth_token=key, timeout=60)


async def raises(kind, call, words=""):
    try:
        result = await call
    except kind as error:
        assert type(error) is kind, f"{type(error)} instead of {kind}"
        assert words in str(error), str(error)
        return error
    raise AssertionError(f"{result} instead of {kind}")


async def refused(call, status):
    try:
        result = await call
    except Exception as error:
        assert getattr(error, "status", None) == status, repr(error)
        return
    raise AssertionError(f"{result} instead of {status}")


async def keys(own):
    """Keys of other tenants, no key, keys that only read, and sandboxes that do not exist."""
    box, command = os.environ["SANDBOX"], Command(command=["true"])
    for name, key, status in (("none", "", 401), ("wrong", "no-such-key", 401)):
        other = runtime(box, key)
        assert not await other.is_alive(), name
        await refused(other.execute(command), status)
    foreign = runtime(box, os.environ["OTHER_KEY"])
    assert not await foreign.is_alive()
    reader = runtime(box, os.environ["READ_KEY"])
    assert await reader.is_alive()
    for call, body in (
        ("execute", command),
        ("create_session", CreateBashSessionRequest()),
        ("close_session", CloseBashSessionRequest()),
        ("run_in_session", BashAction(command="true")),
        ("read_file", ReadFileRequest(path="/etc/passwd")),
        ("write_file", WriteFileRequest(path="/tmp/x", content="x")),
        ("upload", UploadRequest(source_path=__file__, target_path="/tmp/x")),
    ):
        await refused(getattr(foreign, call)(body), 404)
        await refused(getattr(reader, call)(body), 403)
    await refused(foreign.close(), 404)
    missing = runtime("nothere", os.environ["ISOLET_API_KEY"])
    assert "nothere" in (await missing.is_alive()).message
    await refused(missing.execute(command), 404)


async def sessions(own):
    await own.create_session(CreateBashSessionRequest())
    await raises(SessionExistsError, own.create_session(CreateBashSessionRequest()), "default")
    await own.write_file(WriteFileRequest(path="/root/rc", content="echo hello; export LEVEL=3; f() { echo f$1; }"))
    other = CreateBashSessionRequest(session="other", startup_source=["/root/rc"], startup_timeout=10)
    assert (await own.create_session(other)).output == "hello\n"
    shown = await own.run_in_session(BashAction(command="echo $LEVEL; f 1", session="other"))
    assert shown.output == "3\nf1\n", shown
    slow = CreateBashSessionRequest(session="slow", startup_source=["/root/slow"], startup_timeout=0.2)
    await own.write_file(WriteFileRequest(path="/root/slow", content="sleep 60"))
    await raises(CommandTimeoutError, own.create_session(slow), "0.2")
    assert (await own.run_in_session(BashAction(command='echo "[$LEVEL]"'))).output == "[]\n"
    await own.close_session(CloseBashSessionRequest(session="other"))
    gone = own.close_session(CloseBashSessionRequest(session="other"))
    await raises(SessionDoesNotExistError, gone, "other")
    await raises(SessionDoesNotExistError, own.run_in_session(BashAction(command="true", session="never")))
    await refused(own.create_session(CreateBashSessionRequest(session="a/b")), 400)


async def commands(own):
    async def run(command, **options):
        return await own.run_in_session(BashAction(command=command, **options))

    await run("cd /tmp; export A=1; b=2")
    result = await run('echo "$PWD $A $b"; echo error >&2; echo "ü"')
    assert result.output == "/tmp 1 2\nerror\nü\n", result
    assert (result.exit_code, result.expect_string) == (0, "SHELLPS1PREFIX")
    for command in ("", "\n\n \n", "# comment"):
        assert (await run(command)).output == ""
    assert (await run("printf '\n  x'")).output == "\n  x"
    assert (await run("cat <<E\na\n\nb\nE\necho c")).output == "a\n\nb\nc\n"
    assert (await run("false | cat; (exit 7)", check="silent")).exit_code == 7
    assert (await run("false", check="ignore")).exit_code is None
    assert (await run("no-such-command", check="silent")).exit_code == 127
    error = await raises(NonZeroExitCodeError, run("echo out; false", error_msg="my words"), "my words")
    assert "exit code 1" in str(error) and "out" in str(error), error
    error = await raises(BashIncorrectSyntaxError, run("echo first\n(a"))
    assert "syntax error" in error.extra_info["bash_stderr"], error.extra_info
    await raises(CommandTimeoutError, run("sleep 60", timeout=0.3), "0.3")
    assert (await own.run_in_session(BashInterruptAction())).exit_code == 0
    assert (await run('echo "$PWD $A $b"', timeout=10)).output == "/tmp 1 2\n", "the shell has survived"
    await raises(SwerexException, run("python3", is_interactive_command=True), "not supported")
    await raises(SwerexException, run("true", expect=["x"]), "not supported")
    assert len((await run("head -c 300000 /dev/zero | tr '\\0' x")).output) == 300000


async def programs(own):
    async def execute(command, **options):
        return await own.execute(Command(command=command, **options))

    result = await execute(["sh", "-c", 'echo "$0 $V"; echo err >&2; pwd', "a b"], env={"V": "c"}, cwd="/usr")
    assert (result.stdout, result.stderr, result.exit_code) == ("a b c\n/usr\n", "err\n", 0), result
    assert (await execute("echo $((1 + 1))", shell=True)).stdout == "2\n"
    merged = await execute(["sh", "-c", "echo a; echo b >&2; echo c"], merge_output_streams=True)
    assert (merged.stdout, merged.stderr) == ("a\nb\nc\n", ""), merged
    assert (await execute("", shell=True, check=True)).exit_code == 0
    assert (await execute("kill -TERM $$", shell=True)).exit_code == -15
    await raises(NonZeroExitCodeError, execute("exit 3", shell=True, check=True, error_msg="mine"), "mine")
    await raises(CommandTimeoutError, execute(["sleep", "60"], timeout=0.3), "0.3")
    await raises(FileNotFoundError, execute(["no-such-program"]), "no-such-program")
    await raises(PermissionError, execute(["/etc/passwd"]), "/etc/passwd")


async def files(own):
    await own.write_file(WriteFileRequest(path="/tmp/new/dir/file", content="a\r\nü\n"))
    assert (await own.read_file(ReadFileRequest(path="/tmp/new/dir/file"))).content == "a\r\nü\n"
    large = "x" * 1_500_000
    await own.write_file(WriteFileRequest(path="large", content=large))
    assert (await own.read_file(ReadFileRequest(path="/workspace/large"))).content == large
    await raises(FileNotFoundError, own.read_file(ReadFileRequest(path="/tmp/none")), "/tmp/none")
    await raises(IsADirectoryError, own.read_file(ReadFileRequest(path="/tmp")), "/tmp")
    await raises(IsADirectoryError, own.write_file(WriteFileRequest(path="/tmp", content="")), "/tmp")
    await own.execute(Command(command="printf 'a\\377' >/tmp/bytes", shell=True, check=True))
    await raises(UnicodeError, own.read_file(ReadFileRequest(path="/tmp/bytes")), "/tmp/bytes")
    assert (await own.read_file(ReadFileRequest(path="/tmp/bytes", errors="replace"))).content == "a\ufffd"
    with tempfile.TemporaryDirectory() as home:
        source = Path(home, "source")
        source.joinpath("below").mkdir(parents=True)
        source.joinpath("a.txt").write_text("one")
        source.joinpath("below/b.bin").write_bytes(bytes(range(256)) * 10_000)
        await own.upload(UploadRequest(source_path=str(source), target_path="/tmp/up dir/to"))
        one = str(source / "a.txt")
        await own.upload(UploadRequest(source_path=one, target_path="/tmp/single/it's.txt"))
        await raises(OSError, own.upload(UploadRequest(source_path=one, target_path="/proc/none/x")))
    listed = await own.execute(Command(command="cd /tmp; cat 'up dir/to/a.txt' \"single/it's.txt\"; wc -c <'up dir/to/below/b.bin'", shell=True))
    assert listed.stdout == "oneone2560000\n", listed
    left = await own.execute(Command(command="ls -A /tmp | grep swerex", shell=True))
    assert left.stdout == "", left


async def main():
    own = runtime(os.environ["SANDBOX"], os.environ["ISOLET_API_KEY"])
    assert await own.is_alive()
    for part in (keys, sessions, commands, programs, files):
        await part(own)
    await own.close()
    await raises(SessionDoesNotExistError, own.run_in_session(BashAction(command="true")))
    assert (await own.execute(Command(command=["cat", "/root/rc"]))).exit_code == 0, "the sandbox stays"
    # The client prints the name of every exception that it raises.
    print("all answered", file=sys.stderr)


asyncio.run(main())
