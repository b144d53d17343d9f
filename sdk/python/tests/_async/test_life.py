"""Life of a sandbox: creation, changes, sleep, wake and deletion."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from relay import Relay
from server import kill_agent

from isolet import (
    AsyncIsolet,
    AsyncSandbox,
    ConflictError,
    IsoletError,
    NotFoundError,
    ServerError,
    UnreachableError,
    UsageError,
)
from isolet._async import io

pytestmark = pytest.mark.anyio


async def test_the_first_use_creates_a_sandbox_with_its_options(
    client: AsyncIsolet, fresh: Callable[[], str]
) -> None:
    sandbox = client.sandbox(
        fresh(), memory_mib=128, pids=50, sleep_after="20m", env={"A": "b"}, metadata={"for": "tests"}
    )
    with pytest.raises(NotFoundError) as raised:
        await sandbox.info()
    assert (raised.value.status, raised.value.code) == (404, "no_sandbox")
    assert (await sandbox.exec("echo $A")).stdout == "b\n"
    info = await sandbox.info()
    assert (info.id, info.state, info.memory_mib, info.pids) == (sandbox.id, "running", 128, 50)
    assert (info.sleep_after, info.persistent, info.env_names) == (1200, True, ("A",))
    assert (info.metadata, info.ttl, info.expires_at) == ({"for": "tests"}, None, None)
    assert info.usage is not None
    assert info.usage.pids > 0
    await sandbox.delete()
    await sandbox.delete()
    with pytest.raises(NotFoundError):
        await sandbox.info()
    # A later use creates another sandbox without the files of the first.
    assert (await sandbox.exec("echo $A")).stdout == "b\n"
    await sandbox.delete()


async def test_one_id_is_one_sandbox_and_a_create_wants_a_new_one(
    client: AsyncIsolet, sandbox: AsyncSandbox
) -> None:
    await sandbox.exec("x=5")
    assert (await client.sandbox(sandbox.id).exec("echo $x")).stdout == "5\n"
    with pytest.raises(ConflictError) as raised:
        await client.create_sandbox(sandbox.id)
    assert raised.value.code == "sandbox_exists"
    assert "another id" in raised.value.hint


async def test_a_with_block_deletes_only_what_it_created(
    client: AsyncIsolet, fresh: Callable[[], str]
) -> None:
    name = fresh()
    async with client.sandbox(name) as sandbox:
        await sandbox.write_file("mine", "1")
    with pytest.raises(NotFoundError):
        await sandbox.info()
    before = await client.create_sandbox(name)
    async with client.sandbox(name):
        # Not used: nothing was created.
        pass
    async with client.sandbox(name) as other:
        await other.write_file("theirs", "2")
    assert await before.read_file("theirs") == "2"
    with pytest.raises(ZeroDivisionError):
        async with client.sandbox(name) as other:
            await other.exec("true")
            raise ZeroDivisionError
    async with client.sandbox(name) as other:
        await other.exec("true")
        # Deleted and used again: the second one is created here.
        await other.delete()
        assert not await other.exists("theirs")
    with pytest.raises(NotFoundError):
        await before.info()


async def test_a_with_block_deletes_what_a_lost_response_created(
    client: AsyncIsolet, relay: Relay, fresh: Callable[[], str]
) -> None:
    name = fresh()
    async with AsyncIsolet(relay.url, retries=0) as cut, cut.sandbox(name) as sandbox:
        relay.cut_answers = 1
        with pytest.raises(UnreachableError):
            await sandbox.exec("true")
        await sandbox.exec("true")
    with pytest.raises(NotFoundError):
        await client.sandbox(name).info()


# Promises: Y1.
async def test_a_create_whose_response_is_lost_creates_one_sandbox(server: object, relay: Relay) -> None:
    async with AsyncIsolet(relay.url) as client:
        before = [info.id async for info in client.sandboxes()]
        relay.cut_answers = 1
        sandbox = await client.create_sandbox(metadata={"once": True})
        assert relay.cut_answers == 0
        made = [info.id async for info in client.sandboxes() if info.id not in before]
        assert made == [sandbox.id]
        await sandbox.delete()


async def test_lists_are_read_page_after_page(client: AsyncIsolet, fresh: Callable[[], str]) -> None:
    ids = sorted(fresh() for _ in range(5))
    for name in ids:
        await client.create_sandbox(name)
    assert [info.id async for info in client.sandboxes(page=2) if info.id in ids] == ids
    for name in ids:
        await client.sandbox(name).delete()


async def test_a_sandbox_is_changed_all_or_nothing(sandbox: AsyncSandbox) -> None:
    info = await sandbox.update(
        memory_mib=256, ttl="1h", sleep_after=0, env={"NEW": "x"}, metadata={"a": [1]}
    )
    assert (info.memory_mib, info.ttl, info.sleep_after, info.metadata) == (256, 3600, None, {"a": [1]})
    assert (await sandbox.exec("echo $NEW")).stdout == "x\n"
    with pytest.raises(UsageError, match="soon"):
        await sandbox.update(sleep_after="soon")
    with pytest.raises(UsageError):
        await sandbox.update(ttl=-1)


# Promises: Y7.
async def test_losses_of_a_sleep_are_reported_once(sandbox: AsyncSandbox) -> None:
    await sandbox.write_file("data", "yes")
    await sandbox.exec("cd /tmp; export A=b; list=(x 'y z'); sleep 1000 &")
    assert (await sandbox.sleep()).state == "sleeping"
    assert (await sandbox.info()).state == "sleeping"
    result = await sandbox.exec('cat /workspace/data; pwd; echo $A "${list[1]}"')
    assert result.stdout == "yes/tmp\nb y z\n"
    assert result.lost is not None
    assert "processes" in result.lost
    assert (await sandbox.exec("true")).lost is None


# Promises: Y7.
async def test_a_shell_whose_state_was_too_large_is_reported_after_a_sleep(sandbox: AsyncSandbox) -> None:
    await sandbox.exec("big=$(head -c 2000000 /dev/zero | tr '\\0' x)")
    await sandbox.sleep()
    result = await sandbox.exec("echo ${#big}")
    assert result.lost is not None
    assert "shell_state" in result.lost
    assert [(lost.session, lost.why) for lost in result.lost_state] == [("default", "too_large")]


# Promises: L15, L17.
async def test_a_paused_sandbox_keeps_its_processes_and_variables(sandbox: AsyncSandbox) -> None:
    await sandbox.exec("A=b; sleep 1000 & true")
    assert (await sandbox.pause()).state == "paused"
    with pytest.raises(ConflictError) as raised:
        await sandbox.exec("true")
    assert raised.value.code == "sandbox_paused"
    assert (await sandbox.resume()).state == "running"
    assert (await sandbox.exec("echo $A; jobs -r | wc -l")).stdout == "b\n1\n"
    await sandbox.pause()
    changed = await sandbox.update(auto_resume=True)
    assert (changed.state, changed.auto_resume) == ("paused", True)
    assert (await sandbox.exec("echo $A")).stdout == "b\n"


# Promises: F7.
async def test_a_failed_sandbox_is_recovered_and_says_what_is_lost(sandbox: AsyncSandbox) -> None:
    await sandbox.write_file("data", "yes")
    marker = f"marker-{sandbox.id}"
    await sandbox.write_file(marker, "")
    kill_agent(marker)
    for _ in range(400):
        if (await sandbox.info()).state == "failed":
            break
        await io.sleep(0.05)
    recovered = await sandbox.recover()
    assert recovered.info.state == "sleeping"
    assert {"shells", "processes"} <= set(recovered.lost)
    result = await sandbox.exec("cat /workspace/data")
    assert result.stdout == "yes"
    assert result.lost is not None
    assert (await sandbox.recover()).lost == ()


async def test_a_sandbox_in_use_is_not_put_to_sleep(sandbox: AsyncSandbox) -> None:
    async with await sandbox.stream("echo begun; sleep 1000") as stream:
        await stream.__anext__()
        with pytest.raises(ConflictError) as raised:
            await sandbox.sleep()
        assert raised.value.code == "sandbox_in_use"


async def test_an_ephemeral_sandbox_has_lost_its_files_when_it_wakes(
    client: AsyncIsolet, fresh: Callable[[], str]
) -> None:
    async with client.sandbox(fresh(), persistent=False) as sandbox:
        await sandbox.write_file("data", "x")
        await sandbox.sleep()
        result = await sandbox.exec("cat data")
        assert not result.ok
        assert result.lost is not None
        assert "files" in result.lost


async def test_a_block_deletes_its_sandbox_also_when_its_work_has_failed(
    client: AsyncIsolet, fresh: Callable[[], str]
) -> None:
    name = fresh()
    with pytest.raises(ZeroDivisionError):
        async with client.sandbox(name) as sandbox:
            await sandbox.exec("true")
            raise ZeroDivisionError
    assert name not in [info.id async for info in client.sandboxes()]


async def test_concurrent_calls_create_one_sandbox(client: AsyncIsolet, fresh: Callable[[], str]) -> None:
    async with client.sandbox(fresh()) as sandbox:
        said: list[str] = []

        async def use(name: str) -> None:
            said.append((await sandbox.exec(f"echo {name}", session=name)).stdout)

        tasks = [io.Task(use, f"s{number}") for number in range(5)]
        for task in tasks:
            await task.join()
        assert sorted(said) == [f"s{number}\n" for number in range(5)]


# Promises: TP1, TP6.
async def test_an_image_from_a_snapshot_has_its_files_and_warns_of_secrets(
    client: AsyncIsolet, sandbox: AsyncSandbox, fresh: Callable[[], str]
) -> None:
    await sandbox.exec("echo made >/opt/made; echo token >/root/.netrc; echo work >/workspace/work; kept=5")
    snapshot = await sandbox.snapshot()
    name = f"local/{fresh().lower()}:1"
    image = await client.commit_image(snapshot.id, name, shells=True)
    assert (image.snapshot, image.source, image.on_host) == (snapshot.id, "snapshot", True)
    assert image.shells
    assert [(one.path, one.kind) for one in image.warnings] == [("/root/.netrc", "credentials")]
    assert image.name in [one for image in await client.images() for one in image.names]
    async with await client.create_sandbox(image=name) as copy:
        assert (await copy.exec("cat /opt/made /workspace/work; echo $kept")).stdout == "made\nwork\n5\n"
    await client.delete_snapshot(snapshot.id)
    second = f"local/{fresh().lower()}:2"
    assert set((await client.tag_image(name, second)).names) == {f"docker.io/{name}", f"docker.io/{second}"}
    await client.delete_image(name)
    assert [one.names for one in await client.images() if one.digest == image.digest] == [
        (f"docker.io/{second}",)
    ]
    await client.delete_image(second)
    with pytest.raises(NotFoundError) as raised:
        await client.delete_image(name)
    assert raised.value.code == "no_image"


# Promises: SN1, SN4.
async def test_a_snapshot_and_a_fork_have_files_and_shells(
    client: AsyncIsolet, sandbox: AsyncSandbox, fresh: Callable[[], str]
) -> None:
    await sandbox.exec("x=5; cd /tmp; echo before >/workspace/state")
    name = fresh()
    snapshot = await sandbox.snapshot(name=name, metadata={"for": "tests"})
    assert (snapshot.name, snapshot.sandbox, snapshot.metadata) == (name, sandbox.id, {"for": "tests"})
    assert snapshot.lost == ()
    await sandbox.exec("echo after >/workspace/state")
    assert [one.id for one in await client.snapshots(sandbox=sandbox.id)] == [snapshot.id]
    async with await client.create_sandbox(snapshot=name) as copy:
        assert (await copy.exec("echo $x; pwd; cat /workspace/state")).stdout == "5\n/tmp\nbefore\n"
    [fork] = await sandbox.fork()
    async with fork:
        assert (await fork.exec("echo $x; cat /workspace/state")).stdout == "5\nafter\n"
    restored = await sandbox.restore(name)
    assert (restored.info.id, restored.info.state, restored.lost) == (sandbox.id, "running", ("shells",))
    assert (await sandbox.exec("echo $x; pwd; cat /workspace/state")).stdout == "5\n/tmp\nbefore\n"
    with pytest.raises(ServerError) as refused:
        await client.push_snapshot(name)
    assert refused.value.code == "no_snapshot_store"
    with pytest.raises(ServerError) as refused:
        await client.pull_snapshot(snapshot.id, name="other")
    assert refused.value.code == "no_snapshot_store"
    with pytest.raises(ServerError) as refused:
        await client.stored_snapshots()
    assert refused.value.code == "no_snapshot_store"
    with pytest.raises(ServerError) as refused:
        await client.delete_stored_snapshot(snapshot.id)
    assert refused.value.code == "no_snapshot_store"
    await client.delete_snapshot(name)
    assert await client.snapshots(sandbox=sandbox.id) == []
    with pytest.raises(NotFoundError) as raised:
        await client.delete_snapshot(name)
    assert raised.value.code == "no_snapshot"


# Promises: SN10, SN11.
async def test_files_of_a_snapshot_are_listed_read_and_compared(
    client: AsyncIsolet, fresh: Callable[[], str]
) -> None:
    name = fresh()
    odd = "odd #1 %\u00fc?"
    async with client.sandbox(fresh()) as sandbox:
        await sandbox.exec(
            "mkdir -p deep/er; printf 'a\\000b\\377' >deep/bytes; echo x >.hidden; ln -s deep/bytes link; "
            f"echo kept >kept; echo old >'{odd}'; echo gone >deep/gone; mkfifo /opt/pipe"
        )
        before = await sandbox.snapshot(name=name)
        await sandbox.exec(
            f"rm deep/gone; echo new >'{odd}'; mkdir more; touch more/{{1..1200}}; chmod 600 kept"
        )
        after = await sandbox.snapshot()
    top = [one.name async for one in client.snapshot_files(name)]
    assert top == ["deep", "kept", "link", odd]
    deep = [(one.path, one.type, one.size) async for one in client.snapshot_files(name, "deep")]
    assert [path for path, _, _ in deep] == [f"/workspace/deep/{one}" for one in ("bytes", "er", "gone")]
    assert deep[0][1:] == ("file", 4)
    everything = [
        one async for one in client.snapshot_files(before.id, "/workspace", recursive=True, hidden=True)
    ]
    paths = [one.path.removeprefix("/workspace/") for one in everything]
    assert paths == [".hidden", "deep", "deep/bytes", "deep/er", "deep/gone", "kept", "link", odd]
    assert [one.target for one in everything if one.type == "symlink"] == ["deep/bytes"]
    # Over several pages.
    assert len([one async for one in client.snapshot_files(after.id, "more")]) == 1200

    assert await client.read_snapshot_file(name, "link") == b"a\0b\xff"
    assert await client.read_snapshot_file(before.id, odd) == b"old\n"
    assert (await client.read_snapshot_file(name, "/etc/passwd")).startswith(b"root:")
    for path, code in (("deep/none", "not_found"), ("/opt/pipe", "wrong_kind")):
        with pytest.raises(IsoletError) as refused:
            await client.read_snapshot_file(name, path)
        assert isinstance(refused.value, (NotFoundError, ConflictError))
        assert refused.value.code == code

    changes = [
        (one.change, one.file.path.removeprefix("/workspace/"), one.file.type)
        async for one in client.diff_snapshots(name, after.id)
    ]
    assert len(changes) == 1204
    assert [one for one in changes if not one[1].startswith("more/")] == [
        ("removed", "deep/gone", "file"),
        ("changed", "kept", "file"),
        ("added", "more", "directory"),
        ("changed", odd, "file"),
    ]
    with pytest.raises(NotFoundError) as unknown:
        _ = [one async for one in client.diff_snapshots(name, "none")]
    assert unknown.value.code == "no_snapshot"
    await client.delete_snapshot(name)
    await client.delete_snapshot(after.id)
    with pytest.raises(NotFoundError) as deleted:
        _ = [one async for one in client.snapshot_files(name)]
    assert deleted.value.code == "no_snapshot"


async def test_a_forced_sleep_ends_commands_and_counts_as_a_boot(sandbox: AsyncSandbox) -> None:
    async with await sandbox.stream("echo begun; sleep 1000") as busy:
        assert (await busy.__anext__()).text == "begun\n"
        with pytest.raises(ConflictError):
            await sandbox.sleep()
        assert (await sandbox.sleep(force=True)).boots == 1
    await sandbox.exec("true")
    assert (await sandbox.info()).boots == 2
