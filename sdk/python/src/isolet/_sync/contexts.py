"""The code contexts of a sandbox."""
# Made by tools/make_sync.py from its async twin: change that one.

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import calls
from ..code import ContextInfo, Execution
from ..values import AnyPath, Duration, Env
from .context import Context, OnEvent

if TYPE_CHECKING:
    from .client import Connection


class Contexts:
    """The code contexts of a sandbox."""

    _connection: Connection
    id: str

    def _ready(self) -> None:
        raise NotImplementedError

    def _at(self) -> str:
        raise NotImplementedError

    def context(self, id: str) -> Context:
        """A code context by its id; those named as a language (``python``, ``bash``, …) need not be made."""
        return Context(self._connection, self.id, id, self._ready)

    def create_context(
        self,
        id: str | None = None,
        *,
        language: str | None = None,
        kernel: str | None = None,
        session: str | None = None,
        cwd: AnyPath | None = None,
        env: Env | None = None,
        timeout: Duration | None = None,
    ) -> Context:
        """Makes a code context: an interpreter that keeps variables and imports.

        Args:
            id: the server makes one unless told.
            language: ``python`` (unless told), ``javascript``, ``typescript``, ``bash`` or ``jupyter``.
            kernel: a Jupyter kernel of the image by its name; ``python3`` for ``jupyter`` unless told.
                ``"none"``: no kernel, where ``python`` would have the image's ``ipykernel``.
            session: whose directory, environment and files it has, and with which it ends.
            cwd: where it starts; ``/workspace``, or the session's own, unless told.
            env: over the sandbox's environment; ``None`` unsets a name.
            timeout: for runs that name none, in seconds: 60 unless told; 0 is a day, the longest.

        Raises:
            ConflictError: ``exists``.
            ServerError: ``not_in_image``: the image has no such interpreter.
        """
        self._ready()
        call = calls.create_context(
            self.id,
            id,
            language=language,
            kernel=kernel,
            session=session,
            cwd=cwd,
            env=env,
            timeout=timeout,
        )
        return self.context(ContextInfo.of(self._connection.json(call)).id)

    def contexts(self) -> list[ContextInfo]:
        """Its code contexts, sorted by id; none while it sleeps."""
        at = self._at()
        told = self._connection.json(calls.call("GET", f"{at}/contexts", again=True))
        return [ContextInfo.of(one) for one in told]

    def run_code(
        self,
        code: str,
        *,
        language: str = "python",
        stdin: str | None = None,
        timeout: Duration | None = None,
        on_event: OnEvent | None = None,
    ) -> Execution:
        """Runs code in the context of a language's own name, which is made where it is not there.

        Takes what a context's :meth:`run` takes.
        """
        return self.context(language).run(code, stdin=stdin, timeout=timeout, on_event=on_event)
