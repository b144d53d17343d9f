"""API keys."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from isolet import AsyncIsolet, ForbiddenError, NotFoundError, UnauthorizedError

pytestmark = pytest.mark.anyio


async def test_a_key_is_created_listed_used_and_revoked(
    client: AsyncIsolet, fresh: Callable[[], str]
) -> None:
    label = fresh()
    made = await client.create_key(label=label, read_only=True, ttl="1h")
    assert (made.label, made.read_only, made.revoked_at) == (label, True, None)
    assert made.expires_at is not None
    assert abs(made.expires_at - made.created_at - timedelta(hours=1)) < timedelta(seconds=5)
    assert made.secret not in repr(made)
    assert [one.id for one in await client.keys() if one.label == label] == [made.id]

    async with AsyncIsolet(client.url, made.secret) as reader:
        current = await reader.current_key()
        assert (current.id, current.tenant, current.read_only) == (made.id, made.tenant, True)
        with pytest.raises(ForbiddenError):
            await reader.create_sandbox(fresh())
        await client.revoke_key(made.id)
        with pytest.raises(UnauthorizedError):
            await reader.keys()

    [revoked] = [one for one in await client.keys() if one.id == made.id]
    assert revoked.revoked_at is not None
    assert revoked.last_used_at is not None
    with pytest.raises(NotFoundError):
        await client.revoke_key("key_0000000000000000")
