"""What was done to sandboxes, what they have used, and what is left of processes."""
# Made by tools/make_sync.py from its async twin: change that one.

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import pytest

from isolet import Isolet, Sandbox
from isolet._sync import io

pytestmark = pytest.mark.anyio


def test_what_was_done_is_told_also_of_one_that_is_gone(
    client: Isolet, fresh: Callable[[], str]
) -> None:
    sandbox = client.sandbox(fresh())
    before = client.usage()
    sandbox.exec("for i in {1..200000}; do :; done")
    sandbox.delete()
    for _ in range(100):
        entries = [one for one in client.audit(sandbox=sandbox.id)]
        # Entries are put in as calls end.
        if "sandbox.destroyed" in [one.event for one in entries]:
            break
        io.sleep(0.05)
    events = [one.event for one in entries]
    assert {"sandbox.created", "exec.start", "sandbox.destroy", "sandbox.destroyed"} <= set(events)
    assert {one.sandbox for one in entries} == {sandbox.id}
    assert [one.seq for one in entries] == sorted({one.seq for one in entries})
    first = entries[0]
    assert json.loads(first.line)["seq"] == first.seq
    assert abs(first.at - datetime.now(timezone.utc)) < timedelta(minutes=10)
    for one in client.audit():
        assert one.seq >= 1
        break
    after = client.usage()
    assert after.ended_sandboxes > before.ended_sandboxes
    assert after.cpu_seconds > before.cpu_seconds


def test_processes_that_have_ended_are_forgotten_alone(sandbox: Sandbox) -> None:
    stays = sandbox.start_process("sleep 1000")
    for _ in range(2):
        (sandbox.start_process("true")).wait()
    assert sandbox.forget_ended_processes() == 2
    assert [one.id for one in sandbox.processes()] == [stays.id]
    assert sandbox.forget_ended_processes() == 0
