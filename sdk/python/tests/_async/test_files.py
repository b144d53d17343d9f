"""Files: whole, in ranges, streamed, archived and watched."""

from __future__ import annotations

import io as memory
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path, PurePosixPath

import pytest

from isolet import AsyncSandbox, ConflictError, NotFoundError, RefusedError, UsageError
from isolet._async import io

pytestmark = pytest.mark.anyio

ODD = "odd name #1?%ü.txt"


async def test_a_file_is_written_read_and_described(sandbox: AsyncSandbox) -> None:
    saved = await sandbox.write_file(f"folder/{ODD}", "grün", mode=0o640)
    assert (saved.path, saved.size) == (f"/workspace/folder/{ODD}", 5)
    assert await sandbox.read_file(PurePosixPath("/workspace/folder") / ODD) == "grün"
    info = await sandbox.stat(f"folder/{ODD}")
    assert (info.name, info.type, info.size, info.mode) == (ODD, "file", 5, 0o640)
    assert info.modified.tzinfo is not None
    await sandbox.write_file(f"folder/{ODD}", b"\xff", append=True, fsync=True)
    assert await sandbox.read_bytes(f"folder/{ODD}") == "grün".encode() + b"\xff"
    assert (await sandbox.chmod(f"folder/{ODD}", 0o755)).mode == 0o755
    assert (await sandbox.exec(f"stat -c %a 'folder/{ODD}'")).stdout == "755\n"
    assert "root" in await sandbox.read_file("/etc/passwd")


async def test_a_write_replaces_only_the_version_that_was_read(sandbox: AsyncSandbox) -> None:
    first = await sandbox.write_file("conditional", "first")
    assert first.etag == (await sandbox.stat("conditional")).etag
    # Another client writes.
    await sandbox.exec("echo other > conditional")
    with pytest.raises(ConflictError) as changed:
        await sandbox.write_file("conditional", "second", if_match=first.etag)
    assert (changed.value.code, changed.value.status) == ("file_changed", 412)
    assert await sandbox.read_file("conditional") == "other\n"
    now = (await sandbox.stat("conditional")).etag
    second = await sandbox.write_file("conditional", "second", if_match=now)
    assert second.etag not in (None, now)
    with pytest.raises(ConflictError):
        await sandbox.write_file("missing", "x", if_match="*")
    assert not await sandbox.exists("missing")


async def test_a_part_of_a_file_is_read(sandbox: AsyncSandbox) -> None:
    await sandbox.write_file("digits", "0123456789")
    assert await sandbox.read_bytes("digits", start=3) == b"3456789"
    assert await sandbox.read_bytes("digits", start=3, length=2) == b"34"
    assert await sandbox.read_bytes("digits", length=4) == b"0123"
    assert await sandbox.read_bytes("digits", start=8, length=100) == b"89"
    with pytest.raises(RefusedError) as beyond:
        await sandbox.read_bytes("digits", start=11)
    assert beyond.value.code == "bad_range"
    with pytest.raises(UsageError):
        await sandbox.read_bytes("digits", length=0)


# Promises: Y8.
async def test_names_are_bytes_and_stay_in_the_sandbox(sandbox: AsyncSandbox) -> None:
    name = b"not \xff utf-8"
    await sandbox.write_file(name, "x")
    listed = [info async for info in sandbox.list_files()]
    assert [(info.name, info.path_bytes) for info in listed] == [("not \ufffd utf-8", b"/workspace/" + name)]
    assert await sandbox.read_file(listed[0].path_bytes) == "x"
    await sandbox.move_file(name, b"\xfe")
    assert await sandbox.exists(b"\xfe")
    # `..` is resolved inside the sandbox, not in the URL.
    await sandbox.write_file("a/../../tmp/up", "y")
    assert await sandbox.read_file("/tmp/up") == "y"
    assert not await sandbox.exists("../../../../../../../../v1")
    with pytest.raises(NotFoundError):
        await sandbox.read_file("..%2f..")


async def test_files_are_moved_copied_and_removed(sandbox: AsyncSandbox) -> None:
    await sandbox.mkdir("one/deep")
    await sandbox.mkdir("one/deep")
    await sandbox.write_file("one/deep/file", "x")
    assert (await sandbox.copy_file("one", "two")).type == "directory"
    assert (await sandbox.move_file("two/deep/file", "three/file")).path == "/workspace/three/file"
    assert not await sandbox.exists("two/deep/file")
    with pytest.raises(ConflictError) as there:
        await sandbox.move_file("three/file", "one/deep/file", replace=False)
    assert there.value.code == "exists"
    with pytest.raises(ConflictError) as full:
        await sandbox.delete_file("one")
    assert full.value.code == "not_empty"
    await sandbox.delete_file("one", recursive=True)
    assert not await sandbox.exists("one")
    await sandbox.exec("ln -s three/file link; ln -s nowhere broken")
    assert (await sandbox.stat("link", follow=False)).target == "three/file"
    assert (await sandbox.stat("link")).type == "file"
    assert not await sandbox.exists("broken")


async def test_directories_are_listed_page_after_page(sandbox: AsyncSandbox) -> None:
    await sandbox.exec("mkdir -p src/sub; touch src/{a,b,c}.py src/sub/d.py src/.hidden src/e.txt")
    names = [info.name async for info in sandbox.list_files("src")]
    assert names == ["a.py", "b.py", "c.py", "e.txt", "sub"]
    deep = [info.path async for info in sandbox.list_files("src", recursive=True, glob="*.py", page=2)]
    assert deep == [f"/workspace/src/{name}" for name in ("a.py", "b.py", "c.py", "sub/d.py")]
    assert ".hidden" in [info.name async for info in sandbox.list_files("src", hidden=True)]
    with pytest.raises(NotFoundError):
        [info async for info in sandbox.list_files("none")]


async def test_a_directory_is_not_read_as_a_file(sandbox: AsyncSandbox) -> None:
    await sandbox.exec("mkdir folder; mkfifo pipe")
    for path in ("folder", "pipe"):
        with pytest.raises(ConflictError) as raised:
            await sandbox.read_file(path)
        assert raised.value.code == "wrong_kind"
    with pytest.raises(NotFoundError) as missing:
        await sandbox.read_file("none")
    assert (missing.value.status, missing.value.code) == (404, "not_found")
    assert missing.value.hint


async def test_large_files_are_uploaded_and_downloaded_in_chunks(
    sandbox: AsyncSandbox, tmp_path: Path
) -> None:
    local, back = tmp_path / "large", tmp_path / "back"
    local.write_bytes(bytes(range(256)) * 40_000)
    assert (await sandbox.upload(local, "large", mode=0o600)).size == 10_240_000
    assert await sandbox.download("large", back) == 10_240_000
    assert back.read_bytes() == local.read_bytes()
    async with await sandbox.stream_file("large", start=10, length=1_000_000) as stream:
        assert stream.size == 1_000_000
        assert stream.etag
        pieces = [piece async for piece in stream]
    assert len(pieces) > 1
    assert b"".join(pieces) == local.read_bytes()[10:1_000_010]
    assert (await sandbox.upload(memory.BytesIO(b"from a file"), "open")).size == 11
    assert (await sandbox.upload(_pieces(), "pieces")).size == 6
    into = memory.BytesIO()
    await sandbox.download("pieces", into)
    assert into.getvalue() == b"onetwo"


async def _pieces() -> AsyncIterator[bytes]:
    for piece in (b"one", b"two"):
        yield piece


async def test_an_upload_that_breaks_off_changes_nothing(sandbox: AsyncSandbox) -> None:
    await sandbox.write_file("file", "old")

    async def broken() -> AsyncIterator[bytes]:
        yield b"new"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await sandbox.upload(broken(), "file")
    assert await sandbox.read_file("file") == "old"
    assert [info.name async for info in sandbox.list_files(hidden=True)] == ["file"]


async def test_directories_are_transferred_as_archives(sandbox: AsyncSandbox) -> None:
    await sandbox.exec(
        "mkdir -p tree/sub; echo x >tree/sub/file; chmod 700 tree/sub; ln -s sub/file tree/link"
    )
    async with await sandbox.read_archive("tree") as stream:
        archive = await stream.read()
    with tarfile.open(fileobj=memory.BytesIO(archive)) as tar:
        names = {name.removeprefix("./").rstrip("/") for name in tar.getnames()}
    assert {"sub", "sub/file", "link"} <= names
    await sandbox.write_archive(memory.BytesIO(archive), "copy")
    assert (await sandbox.exec("cat copy/link; stat -c %a copy/sub")).stdout == "x\n700\n"
    async with await sandbox.read_archive("tree", compress=True) as stream:
        await sandbox.write_archive(memory.BytesIO(await stream.read()), "again")
    assert await sandbox.read_file("again/sub/file") == "x\n"
    with pytest.raises(RefusedError):
        await sandbox.write_archive(memory.BytesIO(b"no archive" * 100), "bad")


async def test_lines_are_found(sandbox: AsyncSandbox) -> None:
    await sandbox.write_file("src/a.py", "import os\n\nNeedle = 1\nneedle = 2\n")
    await sandbox.write_file("src/b.txt", "needle.\n")
    found = await sandbox.search("needle", glob="*.py")
    assert [(line.path, line.line, line.text, line.spans) for line in found.lines] == [
        ("/workspace/src/a.py", 4, "needle = 2", ((0, 6),))
    ]
    assert (found.more, found.files) == (False, 1)
    both = await sandbox.search("needle", "src/a.py", ignore_case=True, context=1)
    assert [(line.line, line.context) for line in both.lines] == [(2, True), (3, False), (4, False)]
    assert [line.path for line in (await sandbox.search("e.", literal=True)).lines] == [
        "/workspace/src/b.txt"
    ]
    assert (await sandbox.search(".", limit=1)).more
    with pytest.raises(RefusedError):
        await sandbox.search("(")


async def test_nothing_that_happens_in_a_watched_directory_is_missed(sandbox: AsyncSandbox) -> None:
    await sandbox.mkdir("seen/sub")
    async with await sandbox.watch("seen", recursive=True) as watch:
        assert watch.directories == 2
        await sandbox.write_file("seen/sub/file", "x")
        await sandbox.move_file("seen/sub/file", "seen/moved")
        await sandbox.delete_file("seen", recursive=True)
        events = [event async for event in watch]
    assert events[-1].type == "gone"
    moves = [(event.path, event.to) for event in events if event.type == "moved"]
    assert ("/workspace/seen/sub/file", "/workspace/seen/moved") in moves
    assert "/workspace/seen/moved" in [event.path for event in events if event.type == "deleted"]


async def test_a_watch_is_closed_in_the_middle_of_a_wait(sandbox: AsyncSandbox) -> None:
    await sandbox.mkdir("seen")
    watch = await sandbox.watch("seen")
    received: list[str] = []

    async def read() -> None:
        async for event in watch:
            received.append(event.type)

    reader = io.Task(read)
    await sandbox.write_file("seen/file", "x")
    while not received:
        await io.sleep(0.01)
    await watch.close()
    await reader.join()
    assert received[0] == "created"
    assert [event async for event in watch] == []
    # The client and its other connections still work.
    assert (await sandbox.exec("echo on")).stdout == "on\n"


async def test_changes_since_a_version_are_reported_and_an_unknown_version_is_refused(
    sandbox: AsyncSandbox,
) -> None:
    await sandbox.mkdir("seen/sub")
    await sandbox.write_file("seen/sub/old", "x")
    before = await sandbox.changes(path="seen")
    assert (before.changes, before.more) == ((), False)
    await sandbox.move_file("seen/sub", "seen/moved")
    await sandbox.write_file("seen/note.txt", "x")
    after = await sandbox.changes(before.version, "seen", exclude=["*.txt"])
    assert [(one.path, one.change, one.type) for one in after.changes] == [
        ("/workspace/seen/moved", "created", "directory"),
        ("/workspace/seen/moved/old", "created", "file"),
        ("/workspace/seen/sub", "deleted", "directory"),
        ("/workspace/seen/sub/old", "deleted", "file"),
    ]
    assert (await sandbox.changes(after.version, "seen")).changes == ()
    with pytest.raises(RefusedError) as caught:
        await sandbox.changes(after.version)
    assert (caught.value.code, caught.value.status) == ("version_expired", 410)


async def test_a_watch_reports_selected_changes_and_a_read_insists_on_a_file(sandbox: AsyncSandbox) -> None:
    await sandbox.mkdir("seen/target")
    async with await sandbox.watch("seen", recursive=True, include=["*.rs"], exclude=["target"]) as watch:
        for name in ("a.py", "target/b.rs", "c.rs"):
            await sandbox.write_file(f"seen/{name}", "x")
        await sandbox.delete_file("seen", recursive=True)
        paths = {event.path async for event in watch if event.type != "gone"}
    assert paths == {"/workspace/seen/c.rs"}
    await sandbox.mkdir("directory")
    with pytest.raises(ConflictError) as caught:
        await sandbox.read_file("directory")
    assert caught.value.code == "wrong_kind"
