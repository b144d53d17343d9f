"""Background processes with ids and logs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
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
from ..values import AnyPath, Duration, Env, milliseconds, seconds
from . import io
from .events import AsyncEventBody

if TYPE_CHECKING:
    from .client import AsyncConnection

#: Reconnect attempts while following a log; about a minute.
_RECONNECT_ATTEMPTS = 16


class AsyncProcess:
    """A background process of a sandbox.

    The process keeps running without clients and across restarts of the server. It does not keep its
    sandbox awake, but following its log or waiting for it does.
    """

    def __init__(self, connection: AsyncConnection, sandbox: str, id: str) -> None:
        self._connection = connection
        self._path = calls.process_path(sandbox, id)
        #: Id, unique within the sandbox.
        self.id = id

    def __repr__(self) -> str:
        return f"{type(self).__name__}(id={self.id!r})"

    def _post(self, what: str, body: dict[str, Any], waits_for_command: bool = False) -> Call:
        return calls.process_post(self._path, what, body, waits_for_command)

    async def info(self) -> ProcessInfo:
        """Read the current state.

        Raises:
            NotFoundError: ``no_such_process``.
        """
        return ProcessInfo.from_json(
            await self._connection.json(calls.call("GET", self._path, repeatable=True))
        )

    async def logs(self, *, since: int = 0) -> ProcessLog:
        """Read the log. The server keeps the last 1 MiB of both streams together.

        Args:
            since: position to start from; :attr:`ProcessLog.position` of the previous call.
        """
        call = calls.call("GET", f"{self._path}/logs", [("since", str(since))], repeatable=True)
        return ProcessLog.from_json(await self._connection.json(call))

    async def follow(self, *, since: int | None = 0) -> AsyncIterator[ProcessOutput]:
        """Iterate over the log as it grows, until the process ends. Reconnects after a lost connection and
        continues at the same byte.

        Args:
            since: position to start from; ``None`` starts with new output.
        """
        last = None if since is None else str(since)
        failed = 0
        while True:
            try:
                response = await self._connection.open(
                    calls.process_follow(self._path, last), read_s=transport.EVENTS_S
                )
                body = AsyncEventBody(self._connection.url, response)
                async for event in body.events():
                    if event.name == "error":
                        if event.data.get("error") == "unauthorized":
                            details = str(event.data.get("message", ""))
                            raise UnauthorizedError(details, code="unauthorized", status=401)
                        break
                    last = event.id or last
                    failed = 0
                    if event.name == "exit":
                        await body.close()
                        return
                    yield ProcessOutput.from_event(event.name, event.data, int(last or 0))
            except (UnreachableError, ServerError):
                if failed >= _RECONNECT_ATTEMPTS:
                    raise
            await io.sleep(config.retry_delay_s(failed))
            failed += 1

    async def write(self, data: str | bytes = "", *, eof: bool = False) -> None:
        """Write to standard input.

        Args:
            data: input; text is encoded as UTF-8.
            eof: close standard input afterwards.

        Raises:
            ConflictError: ``process_ended``: the process has ended, or was started without ``stdin``.
            TooManyRequestsError: ``queue_full``: the process has not read earlier input.
        """
        await self._connection.send(calls.process_stdin(self._path, data, eof))

    async def signal(self, signal: str | int, *, all: bool = False) -> None:
        """Send a signal.

        Args:
            signal: name such as ``"INT"``, or number.
            all: signal everything that the process started, instead of its process group only.
        """
        await self._connection.send(self._post("signal", {"signal": signal, "all": all}))

    async def kill(self, signal: str | int = "TERM", *, grace: Duration = 5) -> ProcessInfo:
        """End the process and everything it started, and wait until none is left. Its record and log stay.

        Args:
            signal: first signal; ``"KILL"`` ends all at once.
            grace: seconds before the remaining processes are killed, at most 60.

        Returns:
            the final state.
        """
        body = {"signal": signal, "grace_ms": milliseconds(grace)}
        return ProcessInfo.from_json(await self._connection.json(self._post("kill", body, True)))

    async def forget(self) -> None:
        """Kill the process and delete its record, so that its id can be used again. No error if it does not
        exist.
        """
        with suppress(NotFoundError):
            await self._connection.send(calls.call("DELETE", self._path, repeatable=True))

    async def wait(self, *, exit_codes: tuple[int, int] | None = None, timeout: Duration = 30) -> ProcessInfo:
        """Wait for the end of the process.

        Args:
            exit_codes: lowest and highest expected exit code; all by default.
            timeout: seconds, at most ten minutes.

        Returns:
            the final state.

        Raises:
            WaitTimeoutError: the process is still running.
            ProcessEndedError: it ended with another exit code than the expected ones.
        """
        condition: dict[str, Any] = {"exit": True}
        if exit_codes is not None:
            condition["exit_codes"] = {"from": exit_codes[0], "to": exit_codes[1]}
        answer = await self._wait(condition, timeout)
        return ProcessInfo.from_json(answer["process"])

    async def wait_for_log(
        self,
        text: str | None = None,
        *,
        regex: str | None = None,
        stream: str | None = None,
        since: int | None = None,
        timeout: Duration = 30,
    ) -> FoundLogLine:
        """Wait for a line in the log. A line counts as soon as it matches, even before its end.

        Args:
            text: text that the line contains.
            regex: expression that the line matches, in the syntax of Rust's ``regex`` crate (no
                look-around).
            stream: ``stdout`` or ``stderr``; both by default.
            since: position to start from; the start of the log by default.
            timeout: seconds, at most ten minutes.

        Raises:
            WaitTimeoutError: no line matched in time.
            ProcessEndedError: the process ended without a matching line.

        Example:
            server = await sandbox.start_process("python3 -m http.server 8000")
            await server.wait_for_log("Serving HTTP")
        """
        condition = {"text": text, "regex": regex, "stream": stream, "since": since}
        condition = {name: value for name, value in condition.items() if value is not None}
        return FoundLogLine.from_json(await self._wait({"log": condition}, timeout))

    async def wait_for_port(
        self, port: int, *, path: str | None = None, status: int | None = None, timeout: Duration = 30
    ) -> None:
        """Wait until a program in the sandbox accepts connections on a port, or answers a request.

        Args:
            port: port on the sandbox's loopback.
            path: send ``GET`` requests for this path; by default, only connect.
            status: expected HTTP status; any from 200 to 399 by default.
            timeout: seconds, at most ten minutes.

        Raises:
            WaitTimeoutError: no program answered in time.
            ProcessEndedError: this process ended, and no program answered.
        """
        condition = {"port": port, "path": path, "status": status}
        condition = {name: value for name, value in condition.items() if value is not None}
        await self._wait({"port": condition}, timeout)

    async def _wait(self, condition: dict[str, Any], timeout: Duration) -> dict[str, Any]:
        body = {**condition, "timeout_ms": milliseconds(timeout)}
        answer: dict[str, Any] = await self._connection.json(self._post("wait", body, True))
        if answer["outcome"] == "timeout":
            raise WaitTimeoutError(
                f"process {self.id}: the wait timed out after {seconds(timeout):g} s", code="timeout"
            )
        if answer["outcome"] == "ended":
            code = answer["process"]["exit_code"]
            raise ProcessEndedError(f"process {self.id} ended with exit code {code}", code="process_ended")
        return answer


class AsyncProcesses:
    """Methods of a sandbox for background processes."""

    _connection: AsyncConnection
    id: str

    async def _ensure_created(self) -> None:
        raise NotImplementedError

    async def _ready_path(self) -> str:
        raise NotImplementedError

    async def start_process(
        self,
        command: str | Sequence[str],
        *,
        id: str | None = None,
        session: str | None = None,
        cwd: AnyPath | None = None,
        env: Env | None = None,
        stdin: bool = False,
        timeout: Duration | None = None,
    ) -> AsyncProcess:
        """Start a process in the background.

        Args:
            command: text for ``bash -c``, or a list of program and arguments.
            id: unique in the sandbox; generated by the server by default.
            session: start with this session's directory and environment.
            cwd: working directory; that of the session or ``/workspace`` by default.
            env: additional environment variables; ``None`` unsets one.
            stdin: leave standard input open for :meth:`AsyncProcess.write`.
            timeout: seconds until the process and everything it started is ended; 0 disables it.

        Returns:
            the process.

        Raises:
            ConflictError: ``id_in_use``.
            NotFoundError: ``not_found``: the program does not exist.
            TooManyRequestsError: ``too_many``: 256 processes are running.
        """
        await self._ensure_created()
        call = calls.start_process(
            self.id, command, id=id, session=session, cwd=cwd, env=env, stdin=stdin, timeout=timeout
        )
        return self.process((await self._connection.json(call))["id"])

    def process(self, id: str) -> AsyncProcess:
        """Get a process by id, without a request.

        Args:
            id: id of the process.
        """
        return AsyncProcess(self._connection, self.id, id)

    async def processes(self) -> list[ProcessInfo]:
        """List all processes, oldest first, including those that have ended."""
        call = calls.call("GET", f"{await self._ready_path()}/processes", repeatable=True)
        return [ProcessInfo.from_json(answer) for answer in await self._connection.json(call)]

    async def forget_ended_processes(self) -> int:
        """Delete the records of ended processes that have no running children.

        Returns:
            number of deleted records.
        """
        ended = [info for info in await self.processes() if info.status != "running" and not info.remains]
        for info in ended:
            await self.process(info.id).forget()
        return len(ended)

    async def forget_processes(self) -> None:
        """Kill all processes and delete their records."""
        await self._connection.send(
            calls.call("DELETE", f"{await self._ready_path()}/processes", repeatable=True)
        )
