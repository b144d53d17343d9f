"""Processes in the background: a program under an id, with a log that stays."""
# Made by tools/make_sync.py from its async twin: change that one.

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .. import calls, config, transport
from ..calls import Call
from ..errors import (
    NotFoundError,
    ProcessEndedError,
    ServerError,
    UnauthorizedError,
    UnreachableError,
    WaitTimeoutError,
)
from ..models import FoundLogLine, ProcessInfo, ProcessLog, ProcessOutput
from ..values import AnyPath, Duration, Env, milliseconds
from . import io
from .events import EventBody

if TYPE_CHECKING:
    from .client import Connection

#: Tries to come back to a log, about a minute of them.
_TRIES = 16


class Process:
    """A process of a sandbox, by its id. It runs on when nobody holds this, and over restarts of the
    server; it does not keep its sandbox awake, but who follows it or waits for it does."""

    def __init__(self, connection: Connection, sandbox: str, id: str) -> None:
        self._connection = connection
        self._path = calls.process_path(sandbox, id)
        #: Unique within the sandbox.
        self.id = id

    def __repr__(self) -> str:
        return f"{type(self).__name__}(id={self.id!r})"

    def _post(self, what: str, body: dict[str, Any], patient: bool = False) -> Call:
        return calls.process_post(self._path, what, body, patient)

    def info(self) -> ProcessInfo:
        """As it is at this moment.

        Raises:
            NotFoundError: ``no_such_process``.
        """
        return ProcessInfo.of(self._connection.json(calls.call("GET", self._path, again=True)))

    def logs(self, *, since: int = 0) -> ProcessLog:
        """What is held of its log: at most the last MiB of both streams together.

        Args:
            since: a position, as :attr:`ProcessLog.position` says where the next call goes on.
        """
        call = calls.call("GET", f"{self._path}/logs", [("since", str(since))], again=True)
        return ProcessLog.of(self._connection.json(call))

    def follow(self, *, since: int | None = 0) -> Iterator[ProcessOutput]:
        """Its log as it grows, up to its end; taken up at its byte after a lost connection.

        Args:
            since: a position; ``None``: from what comes next on.
        """
        last, failed = None if since is None else str(since), 0
        while True:
            try:
                response = self._connection.open(
                    calls.process_follow(self._path, last), read_s=transport.EVENTS_S
                )
                body = EventBody(self._connection.url, response)
                for event in body.events():
                    if event.name == "error":
                        if event.data.get("error") == "unauthorized":
                            said = str(event.data.get("message", ""))
                            raise UnauthorizedError(said, code="unauthorized", status=401)
                        break
                    last, failed = event.id or last, 0
                    if event.name == "exit":
                        body.close()
                        return
                    yield ProcessOutput.of(event.name, event.data, int(last or 0))
            except (UnreachableError, ServerError):
                if failed >= _TRIES:
                    raise
            io.sleep(config.wait_before(failed))
            failed += 1

    def write(self, data: str | bytes = "", *, eof: bool = False) -> None:
        """Writes to its standard input; with ``eof`` it reads the end behind that.

        Raises:
            ConflictError: ``process_ended``: it has, or was started without ``stdin``.
            TooManyRequestsError: ``queue_full``: it has not read what it was given.
        """
        self._connection.send(calls.process_stdin(self._path, data, eof))

    def signal(self, signal: str | int, *, all: bool = False) -> None:
        """Sends a signal to its process group, or with ``all`` to everything it started."""
        self._connection.send(self._post("signal", {"signal": signal, "all": all}))

    def kill(self, signal: str | int = "TERM", *, grace: Duration = 5) -> ProcessInfo:
        """Ends it with everything it started, and returns when nothing is left. It stays listed.

        Args:
            signal: what everything gets first; ``"KILL"`` waits for nothing.
            grace: seconds until what is left is killed, at most 60.
        """
        body = {"signal": signal, "grace_ms": milliseconds(grace)}
        return ProcessInfo.of(self._connection.json(self._post("kill", body, True)))

    def forget(self) -> None:
        """Kills it at once, and frees its id. No error where it is not there."""
        with suppress(NotFoundError):
            self._connection.send(calls.call("DELETE", self._path, again=True))

    def wait(self, *, timeout: Duration = 30) -> ProcessInfo:
        """Waits for its end.

        Args:
            timeout: seconds, at most ten minutes.

        Raises:
            WaitTimeoutError: it runs on.
        """
        told = self._wait({"exit": True}, timeout)
        return ProcessInfo.of(told["process"])

    def wait_for_log(
        self,
        text: str | None = None,
        *,
        regex: str | None = None,
        stream: str | None = None,
        since: int | None = None,
        timeout: Duration = 30,
    ) -> FoundLogLine:
        """Waits for a line of its log, which counts as soon as it matches.

        Args:
            text: that the line holds.
            regex: that it matches, in the syntax of Rust's ``regex``: no look-around.
            stream: ``stdout`` or ``stderr``; both unless told.
            since: a position; from the beginning of what is held unless told.
            timeout: seconds, at most ten minutes.

        Raises:
            WaitTimeoutError: no such line came.
            ProcessEndedError: it ended without one.
        """
        wish = {"text": text, "regex": regex, "stream": stream, "since": since}
        wish = {name: value for name, value in wish.items() if value is not None}
        return FoundLogLine.of(self._wait({"log": wish}, timeout))

    def wait_for_port(
        self, port: int, *, path: str | None = None, status: int | None = None, timeout: Duration = 30
    ) -> None:
        """Waits until something in the sandbox takes connections on a port, or answers there.

        Args:
            port: on the sandbox's loopback.
            path: asked by ``GET``, rather than only connected to.
            status: of the answer; any from 200 to 399 unless told.
            timeout: seconds, at most ten minutes.

        Raises:
            WaitTimeoutError: nothing did.
            ProcessEndedError: the process ended, and nothing did.
        """
        wish = {"port": port, "path": path, "status": status}
        wish = {name: value for name, value in wish.items() if value is not None}
        self._wait({"port": wish}, timeout)

    def _wait(self, wish: dict[str, Any], timeout: Duration) -> dict[str, Any]:
        body = {**wish, "timeout_ms": milliseconds(timeout)}
        told: dict[str, Any] = self._connection.json(self._post("wait", body, True))
        if told["outcome"] == "timeout":
            raise WaitTimeoutError(f"process {self.id}: not within the time", code="timeout")
        if told["outcome"] == "ended":
            code = told["process"]["exit_code"]
            raise ProcessEndedError(f"process {self.id} has ended (exit {code})", code="process_ended")
        return told


class Processes:
    """The processes of a sandbox."""

    _connection: Connection
    id: str

    def _ready(self) -> None:
        raise NotImplementedError

    def _at(self) -> str:
        raise NotImplementedError

    def start_process(
        self,
        command: str | Sequence[str],
        *,
        id: str | None = None,
        session: str | None = None,
        cwd: AnyPath | None = None,
        env: Env | None = None,
        stdin: bool = False,
        timeout: Duration | None = None,
    ) -> Process:
        """Starts a process in the background: a text for ``bash -c``, or program and arguments.

        Args:
            command: what to run.
            id: unique in the sandbox; the server makes one otherwise.
            session: begin with the directory and environment that this session was made with.
            cwd: where it runs; ``/workspace``, or the session's own, unless told.
            env: over the sandbox's environment; ``None`` unsets a name.
            stdin: its standard input stays open for :meth:`Process.write`.
            timeout: seconds until it is ended with all it started; 0 never.

        Raises:
            ConflictError: ``id_in_use``.
            NotFoundError: ``not_found``: there is no such program.
            TooManyRequestsError: ``too_many``: 256 run.
        """
        self._ready()
        call = calls.start_process(
            self.id, command, id=id, session=session, cwd=cwd, env=env, stdin=stdin, timeout=timeout
        )
        return self.process((self._connection.json(call))["id"])

    def process(self, id: str) -> Process:
        """A process by its id; nothing is asked."""
        return Process(self._connection, self.id, id)

    def processes(self) -> list[ProcessInfo]:
        """All, the oldest first: also those that have ended, and that a sleep has ended."""
        call = calls.call("GET", f"{self._at()}/processes", again=True)
        return [ProcessInfo.of(told) for told in self._connection.json(call)]

    def forget_ended_processes(self) -> int:
        """Frees the ids of those that have ended, with all they started; how many these were."""
        ended = [one for one in self.processes() if one.status != "running" and not one.remains]
        for one in ended:
            self.process(one.id).forget()
        return len(ended)

    def forget_processes(self) -> None:
        """Kills all processes at once, and frees their ids."""
        self._connection.send(calls.call("DELETE", f"{self._at()}/processes", again=True))
