"""The way to a server."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterable, Mapping
from types import TracebackType
from typing import Any

import httpx

from .. import calls, config, errors, transport
from ..account import AccountUsage, AuditEntry
from ..calls import Call
from ..models import Credential, NetworkRules, SandboxInfo
from ..values import Duration
from . import io
from .events import AsyncEvents
from .sandbox import AsyncSandbox
from .tenant import AsyncTenantSessions


class AsyncConnection:
    """Sends requests to one server, with its key, and again where that is safe."""

    def __init__(
        self, url: str, key: config.Key, timeout: float, retries: int, context: ssl.SSLContext | None
    ) -> None:
        self.url = url
        self.timeout = timeout
        self.retries = retries
        self._context = context
        self._key = key
        self._http = io.http(timeout, context)

    async def open(self, call: Call, body: Any = None, *, read_s: float | None = None) -> httpx.Response:
        """The answer to a request, its body unread; to be closed.

        Raises:
            RefusedError: the server did not do it.
            UnreachableError: it did not answer.
        """
        attempt = 0
        while True:
            try:
                return await self._try(call, body, read_s)
            except errors.UnreachableError as error:
                unsent = error.code == "unreachable" and body is None
                if not (unsent or call.again) or attempt >= self.retries:
                    raise
                wait = config.wait_before(attempt)
            except errors.ServerError as error:
                passing = call.again and error.status != 501 and error.code in config.PASSING
                if not passing or attempt >= self.retries:
                    raise
                wait = config.wait_before(attempt, "1")
            attempt += 1
            await io.sleep(wait)

    async def _try(self, call: Call, body: Any, read_s: float | None) -> httpx.Response:
        timeout = transport.patience(self.timeout, call.patient)
        if read_s is not None:
            timeout = httpx.Timeout(self.timeout, read=read_s)
        headers = {"accept": "application/json", **call.headers, **self._key.header()}
        request = self._http.build_request(
            call.method,
            self.url + call.target,
            content=call.body if body is None else body,
            headers=headers,
            timeout=timeout,
        )
        try:
            response = await self._http.send(request, stream=True)
            if response.is_success:
                return response
            try:
                await response.aread()
            finally:
                await response.aclose()
        except httpx.TransportError as error:
            raise transport.unreachable(self.url, error) from error
        raise errors.refused(response.status_code, response.content, response.headers)

    async def hand_on(self, method: str, target: str, headers: Any, content: Any) -> httpx.Response:
        """What somebody else answers to a request, whatever its status, with its whole body."""
        request = self._http.build_request(
            method, self.url + target, content=content, headers=headers, timeout=self.timeout
        )
        request.headers.update(self._key.header())
        try:
            return await self._http.send(request)
        except httpx.TransportError as error:
            raise transport.unreachable(self.url, error) from error

    async def send(self, call: Call, body: Any = None) -> httpx.Response:
        """The answer to a request, with its whole body."""
        attempt = 0
        while True:
            response = await self.open(call, body)
            try:
                await response.aread()
                return response
            except httpx.TransportError as error:
                if not call.again or attempt >= self.retries:
                    raise transport.unreachable(self.url, error) from error
                attempt += 1
            finally:
                await response.aclose()

    async def json(self, call: Call, body: Any = None) -> Any:
        """The JSON that a request is answered with."""
        response = await self.send(call, body)
        try:
            return response.json()
        except ValueError as error:
            raise errors.UnreachableError(
                f"{self.url} answers with something else than JSON",
                code="bad_answer",
                hint="is it an Isolet server?",
            ) from error

    async def pages(self, call: Call) -> AsyncIterator[Any]:
        """The entries of a list, page after page."""
        page: Call | None = call
        while page is not None:
            response = await self.send(page)
            for entry in response.json():
                yield entry
            page = calls.next_page(response.headers.get("link"))

    async def socket(self, call: Call) -> io.Socket:
        """A WebSocket."""
        url = "ws" + self.url.removeprefix("http") + call.target
        return await io.Socket.open(url, self._key.header(), self.timeout, self._context)

    async def close(self) -> None:
        """Closes all connections."""
        await self._http.aclose()


class AsyncIsolet(AsyncTenantSessions):
    """A client of one server, for asyncio.

    A client keeps connections: use it for many calls, and close it, or use it in ``async with``.

    Args:
        url: ``http://127.0.0.1:7300``; ``ISOLET_URL`` unless told.
        api_key: ``ISOLET_API_KEY`` unless told, else the key file in ``ISOLET_DATA_DIR``
            (``/var/lib/isolet``) of a server on this machine.
        timeout: seconds for each step of a call: to connect, and without a byte of an answer. Commands
            are waited for as long as they run.
        retries: how often is tried again what can safely be done twice: reads, writes of whole files,
            creates (by an ``Idempotency-Key``), and whatever was not sent yet. Commands never are.
        ssl: for ``https``, where the system's certificates do not do.

    Raises:
        IsoletError: ``no_key``, ``bad_url``.
    """

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        timeout: float = 60.0,
        retries: int = 2,
        ssl: ssl.SSLContext | None = None,
    ) -> None:
        #: The server's address, without a slash at its end.
        self.url = config.find_url(url)
        key = config.find_key(api_key)
        self._connection = AsyncConnection(self.url, key, timeout, retries, ssl)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(url={self.url!r})"

    async def __aenter__(self) -> AsyncIsolet:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connections. Sandboxes and sessions stay."""
        await self._connection.close()

    def sandbox(
        self,
        id: str,
        *,
        default_session: bool = True,
        image: str | None = None,
        memory_mib: int | None = None,
        cpu_millis: int | None = None,
        pids: int | None = None,
        disk_mib: int | None = None,
        env: Mapping[str, str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        persistent: bool | None = None,
        sleep_after: Duration | None = None,
        ttl: Duration | None = None,
        network: str | NetworkRules | None = None,
        network_profile: str | None = None,
        credentials: Iterable[Credential] = (),
    ) -> AsyncSandbox:
        """A sandbox by its id. Nothing is sent before it is used; its first use makes it.

        A sandbox that is there already stays as it is.

        Args:
            id: ``[A-Za-z0-9][A-Za-z0-9._-]{0,127}``.
            default_session: commands that name no session run in the session ``default``; otherwise
                each by itself, with nothing kept between them.
            image: ``host``, or a name that the server's configuration has.
            memory_mib: memory of its processes and files in memory, in MiB.
            cpu_millis: processor time, in thousandths of one core.
            pids: processes and threads.
            disk_mib: its files, in MiB, from 32 on; as much as the server's disk has unless told.
            env: environment of every shell and program.
            metadata: the caller's own words, at most 16 KiB as JSON.
            persistent: files and what shells hold outlive a sleep; true unless told.
            sleep_after: seconds without use, or ``"10m"``; 0 never, 600 unless told or configured.
            ttl: ends by itself after so many seconds; never unless told.
            network: ``none`` (loopback alone), ``open`` (everything but what is closed to every sandbox)
                or rules; ``none`` unless told or configured.
            network_profile: the rules of a network profile, in place of ``network``.
            credentials: put into its requests to hosts, from outside; their values never are inside.
        """
        call = calls.create_sandbox(
            id,
            image=image,
            memory_mib=memory_mib,
            cpu_millis=cpu_millis,
            pids=pids,
            disk_mib=disk_mib,
            env=env,
            metadata=metadata,
            persistent=persistent,
            sleep_after=sleep_after,
            ttl=ttl,
            network=network,
            network_profile=network_profile,
            credentials=credentials,
        )
        return AsyncSandbox(self._connection, id, call, default_session)

    async def create_sandbox(
        self,
        id: str | None = None,
        *,
        default_session: bool = True,
        image: str | None = None,
        memory_mib: int | None = None,
        cpu_millis: int | None = None,
        pids: int | None = None,
        disk_mib: int | None = None,
        env: Mapping[str, str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        persistent: bool | None = None,
        sleep_after: Duration | None = None,
        ttl: Duration | None = None,
        network: str | NetworkRules | None = None,
        network_profile: str | None = None,
        credentials: Iterable[Credential] = (),
    ) -> AsyncSandbox:
        """Makes a sandbox now; the server makes its id where none is told.

        Takes what :meth:`sandbox` takes. Sent again after a lost answer, it makes one sandbox all the same.

        Raises:
            ConflictError: ``sandbox_exists``.
            TooManyRequestsError: ``too_many_sandboxes``.
        """
        call = calls.create_sandbox(
            id,
            image=image,
            memory_mib=memory_mib,
            cpu_millis=cpu_millis,
            pids=pids,
            disk_mib=disk_mib,
            env=env,
            metadata=metadata,
            persistent=persistent,
            sleep_after=sleep_after,
            ttl=ttl,
            network=network,
            network_profile=network_profile,
            credentials=credentials,
        )
        info = SandboxInfo.of(await self._connection.json(call))
        return AsyncSandbox(self._connection, info.id, None, default_session)

    async def sandboxes(self, *, page: int = 100) -> AsyncIterator[SandboxInfo]:
        """All sandboxes of the key's tenant, sorted by id.

        Args:
            page: how many are asked for at once, 1 to 1000.
        """
        async for told in self._connection.pages(calls.page("/v1/sandboxes", page)):
            yield SandboxInfo.of(told)

    async def usage(self) -> AccountUsage:
        """What the tenant's sandboxes have used, also those that are gone."""
        return AccountUsage.of(await self._connection.json(calls.usage()))

    async def audit(self, *, sandbox: str | None = None) -> AsyncIterator[AuditEntry]:
        """What was done to the tenant's sandboxes, the oldest first.

        Args:
            sandbox: to this one alone, also when it is gone.
        """
        response = await self._connection.open(calls.audit(sandbox))
        try:
            async for line in response.aiter_lines():
                yield AuditEntry.of(line)
        except httpx.TransportError as error:
            raise transport.unreachable(self.url, error) from error
        finally:
            await response.aclose()

    def events(self, *, after: int | None = None) -> AsyncEvents:
        """What happens to all sandboxes of the tenant: an iterator that comes back by itself after a
        broken connection, and goes on where it was.

        Args:
            after: go on behind the event of this id; 0: with all that is held (the last 4,096).
        """
        return AsyncEvents(self._connection, "/v1/events", after, last=None)
