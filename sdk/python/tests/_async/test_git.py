"""Cloning repositories: options, injection and credentials."""

from __future__ import annotations

import pytest

from isolet import AsyncSandbox, FileAccess, GitError, NotSupportedError, UsageError

pytestmark = pytest.mark.anyio

REPOSITORY = """
export GIT_CONFIG_GLOBAL=/dev/null GIT_{AUTHOR,COMMITTER}_{NAME,EMAIL}=x
git init -q -b main /tmp/origin && cd /tmp/origin
for i in 1 2 3; do echo $i >file; git add file; git commit -q -m $i; done
git tag v1; git checkout -q -b other; echo other >file; git commit -q -am other; git checkout -q main
git clone -q --bare /tmp/origin /tmp/host/project.git && git -C /tmp/host/project.git update-server-info
cd /workspace
"""
BARE = "file:///tmp/host/project.git"

# Serves files to clients with the right password, and records git's command line.
HOST = """
import base64, http.server, subprocess
RIGHT = "Basic " + base64.b64encode(b"me@home:s3cret/:x").decode()
class Files(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        seen = subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True).stdout
        open("/tmp/seen", "a").write(seen)
        if self.headers.get("authorization") == RIGHT:
            return super().do_GET()
        self.send_response(401)
        self.send_header("www-authenticate", 'Basic realm="x"')
        self.end_headers()
files = lambda *args: Files(*args, directory="/tmp/host")
http.server.ThreadingHTTPServer(("127.0.0.1", 8000), files).serve_forever()
"""


# Promises: Y11.
async def test_a_repository_is_cloned_whole_by_branch_by_tag_and_in_part(sandbox: AsyncSandbox) -> None:
    (await sandbox.exec(REPOSITORY)).check()
    whole = await sandbox.git_checkout(BARE)
    assert (whole.url, whole.branch, whole.target_dir) == (BARE, "main", "/workspace/project")
    assert await sandbox.read_file("project/file") == "3\n"
    odd = "deep/a b; touch x"
    part = await sandbox.git_checkout(BARE, branch="other", target_dir=odd, depth=1)
    assert (part.branch, part.target_dir) == ("other", f"/workspace/{odd}")
    assert (await sandbox.exec(f"git -C '{odd}' log --oneline | wc -l; ls")).stdout == "1\ndeep\nproject\n"
    tag = await sandbox.git_checkout("/tmp/origin", branch="v1", target_dir="tagged")
    assert (tag.branch, tag.commit) == (None, whole.commit)

    await sandbox.mkdir("/tmp/begin")
    session = await sandbox.create_session(cwd="/tmp/begin")
    assert (await session.git_checkout("/tmp/origin")).target_dir == "/tmp/begin/origin"
    scoped = await sandbox.create_session(file_access=FileAccess(read=["project"], write=["out"]))
    made = await scoped.git_checkout("/workspace/project", target_dir="out/copy")
    assert made.target_dir == "/workspace/out/copy"
    with pytest.raises(GitError):
        await scoped.git_checkout("/workspace/project", target_dir="copy")


# Promises: Y11.
async def test_arguments_are_neither_options_nor_shell_code(sandbox: AsyncSandbox) -> None:
    (await sandbox.exec(REPOSITORY)).check()
    for url, branch in (
        ("--upload-pack=touch /tmp/bad", None),
        ("ext::sh -c touch% /tmp/bad", None),
        ("file:///tmp/none.git; touch /tmp/bad", None),
        (BARE, "--config=core.sshCommand=touch /tmp/bad"),
        (BARE, "$(touch /tmp/bad)"),
    ):
        with pytest.raises(GitError) as raised:
            await sandbox.git_checkout(url, branch=branch, target_dir="t")
        assert raised.value.code == "git_failed"
    odd = "--template=$(touch bad)"
    assert (await sandbox.git_checkout("/tmp/origin", target_dir=odd)).target_dir == f"/workspace/{odd}"
    assert (await sandbox.exec("ls /tmp/bad; ls")).stdout == f"{odd}\n"
    with pytest.raises(UsageError):
        await sandbox.git_checkout("/tmp/origin", depth=0)
    with pytest.raises(UsageError):
        await sandbox.git_checkout("/")


# Promises: Y11.
async def test_credentials_are_not_in_arguments_output_results_or_the_clone(sandbox: AsyncSandbox) -> None:
    (await sandbox.exec(REPOSITORY)).check()
    host = await sandbox.start_process(["python3", "-c", HOST])
    await host.wait_for_port(8000)
    made = await sandbox.git_checkout(
        "http://me%40home:s3cret%2F%3Ax@127.0.0.1:8000/project.git", target_dir="private"
    )
    assert made.url == "http://127.0.0.1:8000/project.git"
    assert "s3cret" not in repr(made)
    assert await sandbox.read_file("private/file") == "3\n"
    # git's command line, which contains the host name.
    seen = await sandbox.exec("grep 'git clone' /tmp/seen; grep -r s3cret private; env")
    assert "git clone" in seen.stdout
    assert "s3cret" not in seen.stdout
    with pytest.raises(GitError) as raised:
        await sandbox.git_checkout("http://me:wr0ng@127.0.0.1:8000/project.git", target_dir="no")
    assert raised.value.code == "git_failed"
    assert "wr0ng" not in str(raised.value)
    # git does not prompt, and nothing blocks.
    with pytest.raises(GitError):
        await sandbox.git_checkout("http://127.0.0.1:8000/project.git", target_dir="no")


# Promises: Y12.
async def test_unsupported_methods_raise_with_a_reason(sandbox: AsyncSandbox) -> None:
    session = sandbox.session("default")
    for refused in (
        sandbox.create_backup,
        session.restore_backup,
        session.unmount_bucket,
    ):
        with pytest.raises(NotSupportedError) as raised:
            await refused("/data")
        assert raised.value.code == "not_supported"
    with pytest.raises(NotSupportedError, match="FUSE"):
        await sandbox.mount_bucket("bucket", "/data", read_only=True)
