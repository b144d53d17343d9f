"""The backend: one sandbox, with the methods that Deep Agents expect."""

from __future__ import annotations

import asyncio

from deepagents.backends.protocol import (
    ExecuteResponse,
    FileDownloadResponse,
    FileUploadResponse,
)
from deepagents.backends.sandbox import BaseSandbox
from isolet import AsyncSandbox, ExecResult, IsoletError, Sandbox

#: Exit code of a command that its timeout ended, as of the program ``timeout``.
TIMED_OUT = 124
#: Runs a command with standard error and standard output in one stream, in the order of the writes.
_MERGED = 'exec 2>&1; eval "$1"'


class IsoletSandbox(BaseSandbox):
    """Backend for Deep Agents in a sandbox of an Isolet server.

    Each command runs in a shell of its own, so tools can run at the same time; with ``session``, commands
    run one after the other in the shell of that session and keep its directory, variables and functions.

    Args:
        sandbox: the sandbox. The backend never deletes it.
        async_sandbox: the same sandbox of an ``AsyncIsolet``. Async methods then use it, which needs no
            threads and ends a command whose call is cancelled. It belongs to one event loop.
        timeout: seconds until a command is ended, for calls without ``timeout``; 0 disables it.
        session: id of the session in whose shell commands run.
        max_output_bytes: limit on the output of a command, at most 64 MiB. ``truncated`` says that there
            was more.

    Example::

        with Isolet() as client, client.create_sandbox() as sandbox:
            agent = create_deep_agent(model=model, backend=IsoletSandbox(sandbox=sandbox))
    """

    def __init__(
        self,
        *,
        sandbox: Sandbox,
        async_sandbox: AsyncSandbox | None = None,
        timeout: int = 30 * 60,
        session: str | None = None,
        max_output_bytes: int = 8 * 1024 * 1024,
    ) -> None:
        if async_sandbox is not None and async_sandbox.id != sandbox.id:
            raise ValueError(f"async_sandbox is {async_sandbox.id!r}, and sandbox is {sandbox.id!r}")
        self._sandbox = sandbox
        self._async_sandbox = async_sandbox
        self._timeout = timeout
        self._session = session
        self._max_output_bytes = max_output_bytes

    @property
    def id(self) -> str:
        """The id of the sandbox."""
        return self._sandbox.id

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Run a shell command and wait for its end.

        Args:
            command: the command, for bash.
            timeout: seconds until it and the processes it started are ended; 0 disables it, and ``None``
                stands for the timeout of the backend.

        Returns:
            output of both streams and exit code, which is 124 after a timeout.

        Raises:
            IsoletError: the command did not run, or its result was lost.
        """
        limit_s = self._timeout if timeout is None else timeout
        if self._session is None:
            result = self._sandbox.run_program(
                _merged(command), timeout=limit_s, max_output_bytes=self._max_output_bytes
            )
        else:
            result = self._sandbox.exec(
                command,
                session=self._session,
                timeout=limit_s,
                merge=True,
                max_output_bytes=self._max_output_bytes,
            )
        return _response(result, limit_s)

    async def aexecute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Run a shell command, as :meth:`execute` does."""
        if self._async_sandbox is None:
            return await asyncio.to_thread(self.execute, command, timeout=timeout)
        limit_s = self._timeout if timeout is None else timeout
        if self._session is None:
            result = await self._async_sandbox.run_program(
                _merged(command), timeout=limit_s, max_output_bytes=self._max_output_bytes
            )
        else:
            result = await self._async_sandbox.exec(
                command,
                session=self._session,
                timeout=limit_s,
                merge=True,
                max_output_bytes=self._max_output_bytes,
            )
        return _response(result, limit_s)

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Write files. Missing parent directories are created."""
        return [self._upload(path, content) for path, content in files]

    def _upload(self, path: str, content: bytes) -> FileUploadResponse:
        if not path.startswith("/"):
            return FileUploadResponse(path=path, error="invalid_path")
        try:
            self._sandbox.write_file(path, content)
        except IsoletError as error:
            return FileUploadResponse(path=path, error=_file_error(error))
        return FileUploadResponse(path=path)

    async def aupload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Write files, as :meth:`upload_files` does."""
        if self._async_sandbox is None:
            return await asyncio.to_thread(self.upload_files, files)
        return [await self._aupload(self._async_sandbox, path, content) for path, content in files]

    async def _aupload(self, sandbox: AsyncSandbox, path: str, content: bytes) -> FileUploadResponse:
        if not path.startswith("/"):
            return FileUploadResponse(path=path, error="invalid_path")
        try:
            await sandbox.write_file(path, content)
        except IsoletError as error:
            return FileUploadResponse(path=path, error=_file_error(error))
        return FileUploadResponse(path=path)

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Read files."""
        return [self._download(path) for path in paths]

    def _download(self, path: str) -> FileDownloadResponse:
        if not path.startswith("/"):
            return FileDownloadResponse(path=path, error="invalid_path")
        try:
            return FileDownloadResponse(path=path, content=self._sandbox.read_bytes(path))
        except IsoletError as error:
            return FileDownloadResponse(path=path, error=_file_error(error))

    async def adownload_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Read files, as :meth:`download_files` does."""
        if self._async_sandbox is None:
            return await asyncio.to_thread(self.download_files, paths)
        return [await self._adownload(self._async_sandbox, path) for path in paths]

    async def _adownload(self, sandbox: AsyncSandbox, path: str) -> FileDownloadResponse:
        if not path.startswith("/"):
            return FileDownloadResponse(path=path, error="invalid_path")
        try:
            return FileDownloadResponse(path=path, content=await sandbox.read_bytes(path))
        except IsoletError as error:
            return FileDownloadResponse(path=path, error=_file_error(error))


def _merged(command: str) -> list[str]:
    return ["bash", "-c", _MERGED, "bash", command]


def _response(result: ExecResult, limit_s: int) -> ExecuteResponse:
    output = result.stdout + result.stderr
    exit_code = result.exit_code
    if result.timed_out:
        exit_code = TIMED_OUT
        output += f"{'' if output.endswith(chr(10)) or not output else chr(10)}"
        output += f"Command timed out after {limit_s} seconds"
    return ExecuteResponse(output=output, exit_code=exit_code, truncated=result.truncated is not None)


#: Names that Deep Agents give to errors which a model can correct.
_FILE_ERRORS = {
    "not_found": "file_not_found",
    "denied": "permission_denied",
    "wrong_kind": "is_directory",
    "bad_path": "invalid_path",
    "exists": "invalid_path",
}


def _file_error(error: IsoletError) -> str:
    """Name an error as Deep Agents do, or describe it."""
    return _FILE_ERRORS.get(error.code, str(error))
