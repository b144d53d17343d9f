"""Sessions that are addressed by their id alone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

from .. import calls
from ..models import FileAccess
from ..tenant import TenantSession
from ..values import Duration
from .sandbox import AsyncSandbox
from .session import AsyncSession

if TYPE_CHECKING:
    from .client import AsyncConnection


class AsyncTenantSessions:
    """Methods of a client for sessions of ``/v1/sessions``, which are addressed by their id alone."""

    _connection: AsyncConnection

    async def create_session(
        self,
        *,
        persistent: bool = False,
        sandbox: str | None = None,
        file_access: FileAccess | None = None,
        metadata: Mapping[str, Any] | None = None,
        ttl: Duration | None = None,
    ) -> AsyncSession:
        """Create a session that can be found by its id alone, without naming its sandbox.

        Args:
            persistent: do not expire when idle. Other sessions end five minutes after their last command,
                or as the server configures.
            sandbox: sandbox to create it in; ``default`` by default. The sandbox is created if needed.
            file_access: part of the workspace that the session may access; all by default.
            metadata: arbitrary data of the caller, at most 16 KiB as JSON.
            ttl: lifetime in seconds, or text such as ``"10m"``, after which the session ends even during a
                command; 14,400 by default, at most a year.

        Returns:
            the new session.
        """
        call = calls.create_tenant_session(
            persistent=persistent, sandbox=sandbox, file_access=file_access, metadata=metadata, ttl=ttl
        )
        return self._within(TenantSession.from_json(await self._connection.json(call)))

    def _within(self, record: TenantSession) -> AsyncSession:
        return AsyncSession(AsyncSandbox(self._connection, record.sandbox_id, None, True), record.id)

    async def find_session(self, id: str) -> AsyncSession:
        """Get a session that :meth:`create_session` created.

        Args:
            id: id of the session.

        Raises:
            NotFoundError: ``no_session``: it does not exist or has ended.
        """
        return self._within(await self.session_info(id))

    async def session_info(self, id: str) -> TenantSession:
        """Read configuration and state of a session.

        Args:
            id: id of the session.

        Raises:
            NotFoundError: ``no_session``.
        """
        return TenantSession.from_json(await self._connection.json(calls.tenant_session(id)))

    async def sessions(self, *, page: int = 100) -> AsyncIterator[TenantSession]:
        """Iterate over all sessions that :meth:`create_session` created, sorted by id. Sessions that were
        created in a sandbox are not included.

        Args:
            page: number of entries per request, 1 to 1000.
        """
        async for answer in self._connection.pages(calls.page("/v1/sessions", page)):
            yield TenantSession.from_json(answer)

    async def delete_session(self, id: str) -> None:
        """Delete a session, its shell and its programs.

        Args:
            id: id of the session.

        Raises:
            NotFoundError: ``no_session``.
        """
        await self._connection.send(calls.tenant_session(id, "DELETE"))

    async def delete_sessions(self, *, idle: bool = False, older_than: Duration | None = None) -> int:
        """Delete all sessions that match every filter.

        Args:
            idle: only sessions without a running command.
            older_than: only sessions unused for this many seconds, or text such as ``"1h"``; 0 matches all.

        Returns:
            number of deleted sessions.

        Raises:
            BadRequestError: no filter was given.
        """
        answer = await self._connection.json(calls.delete_tenant_sessions(idle, older_than))
        return int(answer["deleted"])
