"""Sessions that a tenant keeps across its sandboxes."""
# Made by tools/make_sync.py from its async twin: change that one.

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from .. import calls
from ..models import FileAccess
from ..tenant import TenantSession
from ..values import Duration
from .sandbox import Sandbox
from .session import Session

if TYPE_CHECKING:
    from .client import Connection


class TenantSessions:
    """The sessions of ``/v1/sessions``, which the tenant's programs find again by their ids alone."""

    _connection: Connection

    def create_session(
        self,
        *,
        persistent: bool = False,
        sandbox: str | None = None,
        file_access: FileAccess | None = None,
        metadata: Mapping[str, Any] | None = None,
        ttl: Duration | None = None,
    ) -> Session:
        """Makes a session that is found again by its id alone, whichever sandbox it is in.

        Args:
            persistent: it does not end for want of commands: others do five minutes after their last
                one, unless the server's configuration says otherwise.
            sandbox: in which it lives; ``default`` unless told. It is made where it is not there.
            file_access: what of the workspace it sees; all of it unless told.
            metadata: the caller's own words, at most 16 KiB as JSON.
            ttl: seconds from now to its end, or ``"10m"``, also in the middle of a command; 14,400
                unless told, at most a year.
        """
        call = calls.create_tenant_session(
            persistent=persistent, sandbox=sandbox, file_access=file_access, metadata=metadata, ttl=ttl
        )
        return self._within(TenantSession.of(self._connection.json(call)))

    def _within(self, record: TenantSession) -> Session:
        return Session(Sandbox(self._connection, record.sandbox_id, None, True), record.id)

    def find_session(self, id: str) -> Session:
        """One that :meth:`create_session` has made, by its id.

        Raises:
            NotFoundError: ``no_session``: there is none, or it has ended.
        """
        return self._within(self.session_info(id))

    def session_info(self, id: str) -> TenantSession:
        """The record of one.

        Raises:
            NotFoundError: ``no_session``.
        """
        return TenantSession.of(self._connection.json(calls.tenant_session(id)))

    def sessions(self, *, page: int = 100) -> Iterator[TenantSession]:
        """All that :meth:`create_session` has made, sorted by id: not those that were made in a sandbox.

        Args:
            page: how many are asked for at once, 1 to 1000.
        """
        for told in self._connection.pages(calls.page("/v1/sessions", page)):
            yield TenantSession.of(told)

    def delete_session(self, id: str) -> None:
        """Ends one, its shell and the programs that run in it.

        Raises:
            NotFoundError: ``no_session``.
        """
        self._connection.send(calls.tenant_session(id, "DELETE"))

    def delete_sessions(self, *, idle: bool = False, older_than: Duration | None = None) -> int:
        """Ends those for which every filter holds; how many these were.

        Args:
            idle: without a running command.
            older_than: not used for so many seconds, or ``"1h"``; 0 is every one.

        Raises:
            BadRequestError: without a filter.
        """
        told = self._connection.json(calls.delete_tenant_sessions(idle, older_than))
        return int(told["deleted"])
