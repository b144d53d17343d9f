"""Client and connection to a server."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterable, Mapping
from types import TracebackType
from typing import Any

import httpx

from .. import calls, config, errors, transport
from ..account import AccountUsage, AuditEntry
from ..calls import Call
from ..image_models import CommittedImage, ImageInfo
from ..models import FileInfo, SandboxInfo, Snapshot, SnapshotChange
from ..network_models import Credential, NetworkRules
from ..values import Duration
from . import io
from .events import AsyncEvents
from .keys import AsyncKeys
from .nodes import AsyncNodes
from .sandbox import AsyncSandbox
from .tenant import AsyncTenantSessions
from .webhooks import AsyncWebhooks


class AsyncConnection:
    """Sends authenticated requests to one server and retries them where that is safe."""

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
        """Send a request without reading the response body. The caller closes the response.

        Raises:
            RefusedError: the server answered with an error.
            UnreachableError: the server did not answer.
        """
        attempt = 0
        while True:
            try:
                return await self._try(call, body, read_s)
            except errors.UnreachableError as error:
                unsent = error.code == "unreachable" and body is None
                if not (unsent or call.repeatable) or attempt >= self.retries:
                    raise
                wait = config.retry_delay_s(attempt)
            except errors.ServerError as error:
                passing = call.repeatable and error.status != 501 and error.code in config.RETRYABLE_CODES
                if not passing or attempt >= self.retries:
                    raise
                wait = config.retry_delay_s(attempt, "1")
            attempt += 1
            await io.sleep(wait)

    async def _try(self, call: Call, body: Any, read_s: float | None) -> httpx.Response:
        timeout = transport.request_timeout(self.timeout, call.waits_for_command)
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
            raise transport.unreachable_error(self.url, error) from error
        raise errors.error_from_response(response.status_code, response.content, response.headers)

    async def forward(self, method: str, target: str, headers: Any, content: Any) -> httpx.Response:
        """Send a request to a program behind the server's port proxy, and read the whole response whatever
        its
        status.
        """
        request = self._http.build_request(
            method, self.url + target, content=content, headers=headers, timeout=self.timeout
        )
        request.headers.update(self._key.header())
        try:
            return await self._http.send(request)
        except httpx.TransportError as error:
            raise transport.unreachable_error(self.url, error) from error

    async def send(self, call: Call, body: Any = None) -> httpx.Response:
        """Send a request and read the whole response."""
        attempt = 0
        while True:
            response = await self.open(call, body)
            try:
                await response.aread()
                return response
            except httpx.TransportError as error:
                if not call.repeatable or attempt >= self.retries:
                    raise transport.unreachable_error(self.url, error) from error
                attempt += 1
            finally:
                await response.aclose()

    async def json(self, call: Call, body: Any = None) -> Any:
        """Send a request and parse the JSON response."""
        response = await self.send(call, body)
        try:
            return response.json()
        except ValueError as error:
            raise errors.UnreachableError(
                f"{self.url} did not answer with JSON",
                code="bad_answer",
                hint="check that the address is that of an Isolet server",
            ) from error

    async def pages(self, call: Call) -> AsyncIterator[Any]:
        """Iterate over the entries of a paginated list."""
        page: Call | None = call
        while page is not None:
            response = await self.send(page)
            for entry in response.json():
                yield entry
            page = calls.next_page(response.headers.get("link"))

    async def socket(self, call: Call) -> io.Socket:
        """Open a WebSocket."""
        url = "ws" + self.url.removeprefix("http") + call.target
        return await io.Socket.open(url, self._key.header(), self.timeout, self._context)

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()


class AsyncIsolet(AsyncTenantSessions, AsyncKeys, AsyncNodes, AsyncWebhooks):
    """Client of one server, for asyncio.

    The client reuses connections. Create one per program, and close it or use it in ``async with``.

    Args:
        url: the server's address; ``ISOLET_URL`` by default, else ``http://127.0.0.1:7300``.
        api_key: the API key; ``ISOLET_API_KEY`` by default, else the key file in ``ISOLET_DATA_DIR``
            (``/var/lib/isolet``) of a server on this machine.
        timeout: seconds for each step of a request: connecting, and waiting for the next byte of the
            response. Calls that run commands wait as long as the command runs.
        retries: number of retries of requests that are safe to repeat: reads, writes of whole files,
            creates (through an ``Idempotency-Key``), and requests that were not sent. Commands are never
            repeated.
        ssl: TLS context for ``https``; the system's certificates by default.

    Raises:
        IsoletError: ``no_key`` or ``bad_url``.
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
        #: The server's address, without a trailing slash.
        self.url = config.resolve_url(url)
        key = config.resolve_key(api_key)
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
        """Close the connections. Sandboxes and sessions stay."""
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
        auto_resume: bool | None = None,
        sleep_after: Duration | None = None,
        ttl: Duration | None = None,
        network: str | NetworkRules | None = None,
        network_profile: str | None = None,
        credentials: Iterable[Credential] = (),
        snapshot: str | None = None,
        snapshot_every: Duration | None = None,
        keep: int | None = None,
        snapshot_on_destroy: bool | None = None,
        region: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> AsyncSandbox:
        """Get a sandbox by id. Its first use creates it; nothing is sent before.

        If the sandbox exists already, the options other than ``default_session`` have no effect.

        Args:
            id: ``[A-Za-z0-9][A-Za-z0-9._-]{0,127}``.
            default_session: run commands without a session in the session ``default``; if false, run each
                as a separate process without shared state.
            image: ``host``, or an image name from the server's configuration.
            memory_mib: memory limit for processes and in-memory files, in MiB.
            cpu_millis: CPU limit, in thousandths of a core.
            pids: limit on processes and threads.
            disk_mib: size of its disk, in MiB, at least 32, or 0 for no limit; the server has a default.
            env: environment variables of all shells and programs.
            metadata: arbitrary data of the caller, at most 16 KiB as JSON.
            persistent: preserve files and shell state across sleep; true by default.
            auto_resume: resume the sandbox when it is paused and a call works in it; false by default.
            sleep_after: idle time before the sandbox sleeps, in seconds or as text such as ``"10m"``; 0
                disables sleep; 600 by default, or as the server configures.
            ttl: lifetime in seconds, after which the server deletes the sandbox; unlimited by default.
            network: ``none`` (loopback only), ``open`` (all destinations except those closed to every
                sandbox) or rules; ``none`` by default, or as the server configures.
            network_profile: name of a network profile, instead of ``network``.
            credentials: secrets that the egress proxy injects into requests to given hosts; never visible
                inside.
            snapshot: id or name of a snapshot to start from; settings that are left out are those of the
                snapshot.
            snapshot_every: time between snapshots that the server takes, such as ``"1h"``; never by default.
            keep: how many of them exist, 1 to 100; the oldest ones are deleted; 5 by default.
            snapshot_on_destroy: take a snapshot before the sandbox is deleted; false by default.
            region: in a fleet: region of its node; that of the node that gets the request by default.
            labels: in a fleet: labels that its node must have.

        Returns:
            the sandbox. ``async with`` deletes it at the end if it created it, and keeps one that existed
            before.

        Example:
            async with client.sandbox("demo", memory_mib=512) as sandbox:
                print((await sandbox.exec("pwd")).stdout)
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
            auto_resume=auto_resume,
            sleep_after=sleep_after,
            ttl=ttl,
            network=network,
            network_profile=network_profile,
            credentials=credentials,
            snapshot=snapshot,
            snapshot_every=snapshot_every,
            keep=keep,
            snapshot_on_destroy=snapshot_on_destroy,
            region=region,
            labels=labels,
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
        auto_resume: bool | None = None,
        sleep_after: Duration | None = None,
        ttl: Duration | None = None,
        network: str | NetworkRules | None = None,
        network_profile: str | None = None,
        credentials: Iterable[Credential] = (),
        snapshot: str | None = None,
        snapshot_every: Duration | None = None,
        keep: int | None = None,
        snapshot_on_destroy: bool | None = None,
        region: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> AsyncSandbox:
        """Create a sandbox now.

        Takes the options of :meth:`sandbox`. A retry after a lost response does not create a second
        sandbox.

        Args:
            id: generated by the server by default.

        Returns:
            the new sandbox.

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
            auto_resume=auto_resume,
            sleep_after=sleep_after,
            ttl=ttl,
            network=network,
            network_profile=network_profile,
            credentials=credentials,
            snapshot=snapshot,
            snapshot_every=snapshot_every,
            keep=keep,
            snapshot_on_destroy=snapshot_on_destroy,
            region=region,
            labels=labels,
        )
        info = SandboxInfo.from_json(await self._connection.json(call))
        return AsyncSandbox(self._connection, info.id, None, default_session)

    async def sandboxes(self, *, page: int = 100) -> AsyncIterator[SandboxInfo]:
        """Iterate over all sandboxes of the key's tenant, sorted by id.

        Args:
            page: number of entries per request, 1 to 1000.
        """
        async for answer in self._connection.pages(calls.page("/v1/sandboxes", page)):
            yield SandboxInfo.from_json(answer)

    async def snapshots(self, *, sandbox: str | None = None) -> list[Snapshot]:
        """List the snapshots of the key's tenant, sorted by id.

        Args:
            sandbox: list only snapshots of the sandbox with this id.
        """
        query = () if sandbox is None else (("sandbox", sandbox),)
        body = await self._connection.json(calls.call("GET", "/v1/snapshots", query))
        return [Snapshot.from_json(one) for one in body["snapshots"]]

    async def delete_snapshot(self, snapshot: str) -> None:
        """Delete a snapshot. Sandboxes that were created from it keep their files.

        Args:
            snapshot: its id or name.

        Raises:
            NotFoundError: ``no_snapshot``.
            ConflictError: ``snapshot_in_use``: sandboxes are being created from it.
        """
        await self._connection.json(calls.call("DELETE", calls.snapshot_path(snapshot)))

    async def push_snapshot(self, snapshot: str) -> Snapshot:
        """Copy a snapshot to the store that the operator has configured. Sends only what is missing there.

        Args:
            snapshot: its id or name.

        Raises:
            NotFoundError: ``no_snapshot``.
            ServerError: ``no_snapshot_store``, ``snapshot_store_failed``.
        """
        body = await self._connection.json(calls.push_snapshot(snapshot))
        return Snapshot.from_json(body["snapshot"])

    async def pull_snapshot(self, snapshot: str, *, name: str | None = None) -> Snapshot:
        """Copy a snapshot from the store to this server, where it has the same id.

        Args:
            snapshot: its id.
            name: replaces the name that it was pushed with.

        Raises:
            NotFoundError: ``no_stored_snapshot``.
            ConflictError: ``image_missing``: pull or import the image first; ``snapshot_exists``: another
                snapshot has its name.
            ServerError: ``no_snapshot_store``, ``snapshot_store_failed``.
        """
        body = await self._connection.json(calls.pull_snapshot(snapshot, name))
        return Snapshot.from_json(body["snapshot"])

    async def stored_snapshots(self) -> list[Snapshot]:
        """List the snapshots of the key's tenant in the store, sorted by id."""
        body = await self._connection.json(calls.call("GET", "/v1/store/snapshots"))
        return [Snapshot.from_json(one) for one in body["snapshots"]]

    async def delete_stored_snapshot(self, snapshot: str) -> None:
        """Delete a snapshot from the store. Those on servers stay.

        Args:
            snapshot: its id.

        Raises:
            NotFoundError: ``no_stored_snapshot``.
        """
        await self._connection.send(calls.call("DELETE", calls.stored_snapshot_path(snapshot)))

    async def snapshot_files(
        self, snapshot: str, path: str = "/workspace", *, recursive: bool = False, hidden: bool = False
    ) -> AsyncIterator[FileInfo]:
        """Iterate over a directory of a snapshot, without a sandbox.

        Args:
            snapshot: its id or name.
            path: a relative path starts in ``/workspace``.
            recursive: list all directories below.
            hidden: include names that begin with a dot.
        """
        query = (("path", path), ("recursive", str(int(recursive))), ("hidden", str(int(hidden))))
        first = calls.call("GET", f"{calls.snapshot_path(snapshot)}/files", query, repeatable=True)
        async for answer in self._connection.pages(first):
            yield FileInfo.from_json(answer)

    async def read_snapshot_file(self, snapshot: str, path: str) -> bytes:
        """Read a file of a snapshot, without a sandbox.

        Args:
            snapshot: its id or name.
            path: a relative path starts in ``/workspace``.

        Raises:
            NotFoundError: ``no_snapshot``, or ``not_found`` for the file.
        """
        call = calls.call("GET", f"{calls.snapshot_path(snapshot)}/files", (("path", path),), repeatable=True)
        return (await self._connection.send(call)).content

    async def diff_snapshots(self, first: str, second: str) -> AsyncIterator[SnapshotChange]:
        """Iterate over the paths that differ between two snapshots, sorted.

        Args:
            first: id or name of the first snapshot.
            second: id or name of the second snapshot.
        """
        path = calls.snapshot_diff_path(first, second)
        cursor: str | None = ""
        while cursor is not None:
            query = (("cursor", cursor),) if cursor else ()
            page = await self._connection.json(calls.call("GET", path, query, repeatable=True))
            for change in page["changes"]:
                yield SnapshotChange.from_json(change)
            cursor = page["next_cursor"]

    async def images(self) -> list[ImageInfo]:
        """List the images of the key's tenant, newest first."""
        body = await self._connection.json(calls.call("GET", "/v1/images", repeatable=True))
        return [ImageInfo.from_json(one) for one in body]

    async def commit_image(
        self, snapshot: str, name: str, *, workspace: bool = True, env: bool = False, shells: bool = False
    ) -> CommittedImage:
        """Make an image from a snapshot. It contains every file of the snapshot: ``warnings`` lists those
        that usually hold secrets.

        Args:
            snapshot: its id or name.
            name: name of the image, such as ``tools:1``. Another image of the tenant with this name loses it.
            workspace: make the files of the workspace the first content of the workspaces of its sandboxes.
            env: make the variables of the sandbox those of the image. They may hold secrets.
            shells: let its sandboxes start with the sessions of the snapshot and the saved states of their
                shells. Their variables may hold secrets.

        Raises:
            NotFoundError: ``no_snapshot``.
        """
        body = {"snapshot": snapshot, "name": name, "workspace": workspace, "env": env, "shells": shells}
        answer = await self._connection.json(calls.create_call("/v1/images", body))
        return CommittedImage.from_json(answer)

    async def tag_image(self, image: str, name: str) -> ImageInfo:
        """Give an image another name. Only the key's tenant has it, and no registry is asked for it.

        Args:
            image: a name that the image has.
            name: the name that it gets as well, such as ``tools:1``. Another image of the tenant with this
                name loses it.

        Raises:
            NotFoundError: ``no_image``.
            ConflictError: ``image_name_configured``: the operator has configured what the name stands for;
                ``too_many_names``.
        """
        request = calls.json_call("POST", "/v1/images/tag", {"image": image, "name": name}, repeatable=True)
        return ImageInfo.from_json(await self._connection.json(request))

    async def delete_image(self, name: str) -> None:
        """Remove a name of an image; with the last name also the image.

        Raises:
            NotFoundError: ``no_image``.
            ConflictError: ``image_in_use``: sandboxes or snapshots use it.
        """
        await self._connection.send(calls.call("DELETE", calls.image_path(name)))

    async def usage(self) -> AccountUsage:
        """Read the total resource usage of the tenant's sandboxes, including deleted ones."""
        return AccountUsage.from_json(await self._connection.json(calls.usage()))

    async def audit(self, *, sandbox: str | None = None) -> AsyncIterator[AuditEntry]:
        """Iterate over the tenant's audit log, oldest entries first.

        Args:
            sandbox: only entries of this sandbox, which may be deleted.
        """
        response = await self._connection.open(calls.audit(sandbox))
        try:
            async for line in response.aiter_lines():
                yield AuditEntry.from_json(line)
        except httpx.TransportError as error:
            raise transport.unreachable_error(self.url, error) from error
        finally:
            await response.aclose()

    def events(self, *, after: int | None = None) -> AsyncEvents:
        """Subscribe to events of all the tenant's sandboxes.

        Args:
            after: continue after the event with this id; 0 starts with the oldest event that the server has
                (at most 4,096 events); by default, only new events.

        Returns:
            an iterator that reconnects after a lost connection and continues with the next event.
        """
        return AsyncEvents(self._connection, "/v1/events", after, last=None)
