"""Network rules and credentials."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from isolet import (
    AsyncIsolet,
    AsyncSandbox,
    BadRequestError,
    Credential,
    CredentialInfo,
    Denied,
    NetworkRules,
)

pytestmark = pytest.mark.anyio


async def test_network_rules_are_read_and_changed_atomically(sandbox: AsyncSandbox) -> None:
    network = await sandbox.network()
    assert (network.mode, network.allow, network.deny, network.profile) == ("none", (), (), None)
    network = await sandbox.change_network(network_profile="none")
    assert (network.mode, network.profile) == ("none", "none")
    info = await sandbox.info()
    assert (info.network, info.network_profile) == ("none", "none")
    assert (await sandbox.change_network("none")).profile is None
    with pytest.raises(BadRequestError, match="allow_add"):
        await sandbox.change_network(allow_add=["http://example.com"])
    closed = Denied("10.0.0.1", 80, "tcp", "private", 3)
    with pytest.raises(BadRequestError, match="closed to every sandbox"):
        await sandbox.change_network(allow_add=[closed])
    with pytest.raises(BadRequestError, match="not both"):
        await sandbox.change_network("none", network_profile="none")
    assert (await sandbox.network()).mode == "none"


async def test_a_sandbox_is_made_with_the_network_that_was_asked_for(
    client: AsyncIsolet, fresh: Callable[[], str]
) -> None:
    async with client.sandbox(fresh(), network="none") as sandbox:
        assert (await sandbox.exec("true")).denied == ()
    with pytest.raises(BadRequestError, match="allow"):
        await client.create_sandbox(network=NetworkRules(allow=["a b"]))


async def test_credentials_are_injected_and_removed_and_their_values_hidden(
    client: AsyncIsolet, fresh: Callable[[], str]
) -> None:
    credential = Credential("api.example", "hunter2", header="Authorization")
    assert "hunter2" not in repr(credential)
    sandbox = await client.create_sandbox(fresh(), network="none", credentials=[credential])
    info = await sandbox.network()
    # Not allowed, since the network rules allow nothing.
    assert info.credentials == (CredentialInfo("api.example", "authorization", None, False),)
    word = Credential("*.example", "hunter2", placeholder="A_KEY")
    info = await sandbox.change_network(credentials_add=[word], credentials_remove=info.credentials)
    assert info.credentials == (CredentialInfo("*.example", None, "A_KEY", False),)
    assert (await sandbox.change_network(credentials_remove=["*.example"])).credentials == ()
    with pytest.raises(BadRequestError, match="credentials_add") as failure:
        await sandbox.change_network(credentials_add=[Credential("hunter2 x", "hunter2", header="a")])
    assert "hunter2" not in str(failure.value)
    await sandbox.delete()
