"""Audit log, usage, and records of ended processes."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import pytest

from isolet import AsyncIsolet, AsyncSandbox
from isolet._async import io

pytestmark = pytest.mark.anyio


# Promises: Y12.
async def test_the_audit_log_covers_deleted_sandboxes(client: AsyncIsolet, fresh: Callable[[], str]) -> None:
    sandbox = client.sandbox(fresh())
    before = await client.usage()
    await sandbox.exec("for i in {1..200000}; do :; done")
    await sandbox.delete()
    for _ in range(100):
        entries = [one async for one in client.audit(sandbox=sandbox.id)]
        # The server writes an entry when a call ends.
        if "sandbox.destroyed" in [one.event for one in entries]:
            break
        await io.sleep(0.05)
    events = [one.event for one in entries]
    assert {"sandbox.created", "exec.start", "sandbox.destroy", "sandbox.destroyed"} <= set(events)
    assert {one.sandbox for one in entries} == {sandbox.id}
    assert [one.seq for one in entries] == sorted({one.seq for one in entries})
    first = entries[0]
    assert json.loads(first.line)["seq"] == first.seq
    assert abs(first.at - datetime.now(timezone.utc)) < timedelta(minutes=10)
    async for one in client.audit():
        assert one.seq >= 1
        break
    after = await client.usage()
    assert after.ended_sandboxes > before.ended_sandboxes
    assert after.cpu_seconds > before.cpu_seconds


async def test_only_ended_processes_are_forgotten(sandbox: AsyncSandbox) -> None:
    stays = await sandbox.start_process("sleep 1000")
    for _ in range(2):
        await (await sandbox.start_process("true")).wait()
    assert await sandbox.forget_ended_processes() == 2
    assert [one.id for one in await sandbox.processes()] == [stays.id]
    assert await sandbox.forget_ended_processes() == 0
