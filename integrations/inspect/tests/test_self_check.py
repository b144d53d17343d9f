"""The checks that Inspect brings for every provider, with root and with a user who is not root."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from inspect_ai.util import SandboxEnvironment
from inspect_ai.util._sandbox.self_check import *  # noqa: F403

from isolet_inspect import IsoletSandboxConfig, IsoletSandboxEnvironment

pytestmark = pytest.mark.anyio

#: Root may read and write every file, whatever its mode.
ROOT_MAY = {
    "test_read_file_not_allowed",
    "test_write_text_file_without_permissions",
    "test_write_binary_file_without_permissions",
}
#: These wait for 7 s each. They run for the other user, whose commands have one more process.
SLOW = {"test_exec_timeout_kills_process", "test_exec_timeout_kills_child_processes"}


@pytest.fixture(scope="module", params=[None, "user"], ids=["root", "user"])
async def shared(request: pytest.FixtureRequest) -> AsyncIterator[SandboxEnvironment]:
    config = IsoletSandboxConfig(user=request.param)
    await IsoletSandboxEnvironment.task_init("check", config)
    environments = await IsoletSandboxEnvironment.sample_init("check", config, {})
    yield environments["default"]
    await IsoletSandboxEnvironment.sample_cleanup("check", config, environments, False)


@pytest.fixture
def sandbox_env(request: pytest.FixtureRequest, shared: SandboxEnvironment) -> SandboxEnvironment:
    check = request.node.originalname
    if request.node.callspec.params["shared"] is None:
        if check in SLOW:
            pytest.skip("runs for the other user")
        if check in ROOT_MAY:
            request.applymarker(pytest.mark.xfail(reason="root may do it", strict=True))
    return shared
