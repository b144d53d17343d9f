"""A sandbox's life: made by its first use, changed, put to sleep, woken, ended."""
# Made by tools/make_sync.py from its async twin: change that one.

from __future__ import annotations

from collections.abc import Callable

import pytest
from relay import Relay

from isolet import Isolet, Sandbox, ConflictError, NotFoundError, UsageError
from isolet._sync import io

pytestmark = pytest.mark.anyio


def test_a_sandbox_is_made_by_its_first_use_as_it_was_told(
    client: Isolet, fresh: Callable[[], str]
) -> None:
    sandbox = client.sandbox(
        fresh(), memory_mib=128, pids=50, sleep_after="20m", env={"A": "b"}, metadata={"for": "tests"}
    )
    with pytest.raises(NotFoundError) as raised:
        sandbox.info()
    assert (raised.value.status, raised.value.code) == (404, "no_sandbox")
    assert (sandbox.exec("echo $A")).stdout == "b\n"
    info = sandbox.info()
    assert (info.id, info.state, info.memory_mib, info.pids) == (sandbox.id, "running", 128, 50)
    assert (info.sleep_after, info.persistent, info.env_names) == (1200, True, ("A",))
    assert (info.metadata, info.ttl, info.expires_at) == ({"for": "tests"}, None, None)
    assert info.usage is not None
    assert info.usage.pids > 0
    sandbox.delete()
    sandbox.delete()
    with pytest.raises(NotFoundError):
        sandbox.info()
    # A later use makes another one, with nothing of the first.
    assert (sandbox.exec("echo $A")).stdout == "b\n"
    sandbox.delete()


def test_one_id_is_one_sandbox_and_a_create_wants_a_new_one(
    client: Isolet, sandbox: Sandbox
) -> None:
    sandbox.exec("x=5")
    assert (client.sandbox(sandbox.id).exec("echo $x")).stdout == "5\n"
    with pytest.raises(ConflictError) as raised:
        client.create_sandbox(sandbox.id)
    assert raised.value.code == "sandbox_exists"
    assert "another id" in raised.value.hint


def test_a_create_whose_answer_is_lost_makes_one_sandbox(server: object, relay: Relay) -> None:
    with Isolet(relay.url) as client:
        before = [info.id for info in client.sandboxes()]
        relay.cut_answers = 1
        sandbox = client.create_sandbox(metadata={"once": True})
        assert relay.cut_answers == 0
        made = [info.id for info in client.sandboxes() if info.id not in before]
        assert made == [sandbox.id]
        sandbox.delete()


def test_lists_are_read_page_after_page(client: Isolet, fresh: Callable[[], str]) -> None:
    ids = sorted(fresh() for _ in range(5))
    for name in ids:
        client.create_sandbox(name)
    assert [info.id for info in client.sandboxes(page=2) if info.id in ids] == ids
    for name in ids:
        client.sandbox(name).delete()


def test_a_sandbox_is_changed_all_or_nothing(sandbox: Sandbox) -> None:
    info = sandbox.update(
        memory_mib=256, ttl="1h", sleep_after=0, env={"NEW": "x"}, metadata={"a": [1]}
    )
    assert (info.memory_mib, info.ttl, info.sleep_after, info.metadata) == (256, 3600, None, {"a": [1]})
    assert (sandbox.exec("echo $NEW")).stdout == "x\n"
    with pytest.raises(UsageError, match="soon"):
        sandbox.update(sleep_after="soon")
    with pytest.raises(UsageError):
        sandbox.update(ttl=-1)


def test_what_a_sleep_has_cost_is_told_once(sandbox: Sandbox) -> None:
    sandbox.write_file("kept", "yes")
    sandbox.exec("cd /tmp; export A=b; list=(x 'y z'); sleep 1000 &")
    assert (sandbox.sleep()).state == "sleeping"
    assert (sandbox.info()).state == "sleeping"
    result = sandbox.exec('cat /workspace/kept; pwd; echo $A "${list[1]}"')
    assert result.stdout == "yes/tmp\nb y z\n"
    assert result.lost is not None
    assert "processes" in result.lost
    assert (sandbox.exec("true")).lost is None


def test_a_shell_that_held_too_much_is_named_after_a_sleep(sandbox: Sandbox) -> None:
    sandbox.exec("big=$(head -c 2000000 /dev/zero | tr '\\0' x)")
    sandbox.sleep()
    result = sandbox.exec("echo ${#big}")
    assert result.lost is not None
    assert "shell_state" in result.lost
    assert [(lost.session, lost.why) for lost in result.lost_state] == [("default", "too_large")]


def test_one_that_is_used_is_not_put_to_sleep(sandbox: Sandbox) -> None:
    with sandbox.stream("echo begun; sleep 1000") as stream:
        stream.__next__()
        with pytest.raises(ConflictError) as raised:
            sandbox.sleep()
        assert raised.value.code == "sandbox_in_use"


def test_an_ephemeral_sandbox_has_lost_its_files_when_it_wakes(
    client: Isolet, fresh: Callable[[], str]
) -> None:
    with client.sandbox(fresh(), persistent=False) as sandbox:
        sandbox.write_file("data", "x")
        sandbox.sleep()
        result = sandbox.exec("cat data")
        assert not result.ok
        assert result.lost is not None
        assert "files" in result.lost


def test_a_block_deletes_its_sandbox_also_when_its_work_has_failed(
    client: Isolet, fresh: Callable[[], str]
) -> None:
    name = fresh()
    with pytest.raises(ZeroDivisionError):
        with client.sandbox(name) as sandbox:
            sandbox.exec("true")
            raise ZeroDivisionError
    assert name not in [info.id for info in client.sandboxes()]


def test_calls_that_come_together_make_one_sandbox(
    client: Isolet, fresh: Callable[[], str]
) -> None:
    with client.sandbox(fresh()) as sandbox:
        said: list[str] = []

        def use(name: str) -> None:
            said.append((sandbox.exec(f"echo {name}", session=name)).stdout)

        tasks = [io.Task(use, f"s{number}") for number in range(5)]
        for task in tasks:
            task.join()
        assert sorted(said) == [f"s{number}\n" for number in range(5)]
