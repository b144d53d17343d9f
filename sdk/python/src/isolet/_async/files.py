"""Files of a sandbox or session."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import IO, TYPE_CHECKING

import httpx

from .. import file_calls, transport
from ..calls import Call
from ..change_models import FileChanges
from ..errors import ConflictError, NotFoundError
from ..file_models import SavedFile
from ..models import FileInfo, SearchResult
from ..values import AnyPath, path_bytes
from . import io
from .events import AsyncWatch

if TYPE_CHECKING:
    from .client import AsyncConnection

#: Size of the chunks in which local files are uploaded.
_PIECE_BYTES = 256 * 1024


async def _pieces(url: str, response: httpx.Response) -> AsyncIterator[bytes]:
    # Holds no reference to the stream object, so that an abandoned stream is freed at once.
    try:
        async for piece in response.aiter_bytes():
            yield piece
    except httpx.TransportError as error:
        raise transport.unreachable_error(url, error) from error
    finally:
        await response.aclose()


class AsyncFileStream:
    """Content of a file. Use it in ``async with`` and ``async for``, or close it."""

    def __init__(self, url: str, response: httpx.Response) -> None:
        self._response = response
        length = response.headers.get("content-length")
        #: Number of bytes; ``None`` for files without a known size, such as those in ``/proc``.
        self.size = None if length is None else int(length)
        #: Version tag that changes with the file; ``None`` for archives.
        self.etag: str | None = response.headers.get("etag")
        self._pieces = _pieces(url, response)

    def __aiter__(self) -> AsyncFileStream:
        return self

    async def __anext__(self) -> bytes:
        return await self._pieces.__anext__()

    async def read(self) -> bytes:
        """Read the remaining bytes."""
        parts = [piece async for piece in self]
        return b"".join(parts)

    async def __aenter__(self) -> AsyncFileStream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the stream without reading the rest."""
        await self._response.aclose()


class AsyncFiles:
    """File methods of a sandbox or session.

    A path is text, bytes or a ``PurePosixPath``; relative paths start in ``/workspace``. The server
    resolves paths inside the sandbox, so symbolic links cannot lead out of it.

    Raises:
        NotFoundError: the file does not exist.
        ForbiddenError: ``denied``, or the session has read access only.
        ConflictError: ``wrong_kind``, ``exists`` or ``not_empty``.
        ServerError: ``no_space``: the disk of the sandbox or server is full.
    """

    _connection: AsyncConnection

    async def _ready_path(self) -> str:
        raise NotImplementedError

    async def write_file(
        self,
        path: AnyPath,
        content: str | bytes,
        *,
        mode: int | None = None,
        append: bool = False,
        fsync: bool = False,
        if_match: str | None = None,
    ) -> SavedFile:
        """Write a file atomically: readers see either the old or the new content. Parent directories are
        created.

        Args:
            path: file to write.
            content: text is encoded as UTF-8.
            mode: permission bits; by default, new files get 0o644 and existing files keep theirs.
            append: append to an existing file instead of replacing it.
            fsync: return only after file and directory entry are on disk.
            if_match: replace the file only if its ``etag``, from :meth:`stat` or an earlier write, is still
                this one; with ``"*"``, only if it exists.

        Returns:
            path, size, modification time and ``etag``.

        Raises:
            ConflictError: ``file_changed``: the file is not the one of ``if_match``.

        Example:
            await sandbox.write_file("src/main.py", "print(1)", mode=0o755)
        """
        body = content.encode() if isinstance(content, str) else content
        at = await self._ready_path()
        call = file_calls.write_file(at, path, mode=mode, append=append, fsync=fsync, if_match=if_match)
        return SavedFile.from_json(await self._connection.json(file_calls.with_body(call, body)))

    async def read_file(self, path: AnyPath, *, encoding: str = "utf-8", errors: str = "replace") -> str:
        """Read a file as text.

        Args:
            path: file to read.
            encoding: character encoding of the file.
            errors: handling of invalid bytes, as in ``bytes.decode``.

        Raises:
            NotFoundError: the file does not exist.
        """
        return (await self.read_bytes(path)).decode(encoding, errors)

    async def read_bytes(self, path: AnyPath, *, start: int = 0, length: int | None = None) -> bytes:
        """Read a file, or a range of it, as bytes.

        Args:
            path: file to read.
            start: offset of the first byte.
            length: number of bytes; up to the end of the file by default.

        Returns:
            the bytes; fewer than ``length`` if the file ends before.

        Raises:
            BadRequestError: ``bad_range``: the file ends before ``start``.
        """
        async with await self.stream_file(path, start=start, length=length) as stream:
            return await stream.read()

    async def stream_file(
        self, path: AnyPath, *, start: int = 0, length: int | None = None
    ) -> AsyncFileStream:
        """Stream a file, or a range of it.

        Args:
            path: file to read.
            start: offset of the first byte.
            length: number of bytes; up to the end of the file by default.

        Raises:
            NotFoundError: the file does not exist.
            ConflictError: ``wrong_kind``: the path is a directory.
        """
        response = await self._connection.open(
            file_calls.read_file(await self._ready_path(), path, start, length)
        )
        stream = AsyncFileStream(self._connection.url, response)
        if response.headers.get("content-type") == "application/json":
            # The server answers with a list for a directory.
            await stream.close()
            raise ConflictError(
                f"{path!r} is a directory", code="wrong_kind", hint="use list_files", status=409
            )
        return stream

    async def upload(
        self,
        source: str | os.PathLike[str] | io.Source,
        path: AnyPath,
        *,
        mode: int | None = None,
        fsync: bool = False,
    ) -> SavedFile:
        """Upload a file in chunks. An interrupted upload changes nothing. Uploads are never retried.

        Args:
            source: name of a local file, a binary file object, or an iterable of bytes.
            path: file to write.
            mode: permission bits; by default, new files get 0o644 and existing files keep theirs.
            fsync: return only after file and directory entry are on disk.

        Returns:
            path, size and modification time.
        """
        call = file_calls.write_file(await self._ready_path(), path, mode=mode, fsync=fsync)
        return SavedFile.from_json(await self._upload(call, source))

    async def download(self, path: AnyPath, to: str | os.PathLike[str] | IO[bytes]) -> int:
        """Download a file.

        Args:
            path: file to read.
            to: name of a local file, which is replaced, or a binary file object.

        Returns:
            number of bytes.
        """
        stream = await self.stream_file(path)
        if isinstance(to, (str, os.PathLike)):
            with open(to, "wb") as file:  # noqa: ASYNC230
                return await _save(stream, file)
        return await _save(stream, to)

    async def _upload(self, call: Call, source: str | os.PathLike[str] | io.Source) -> dict[str, object]:
        if isinstance(source, (str, os.PathLike)):
            with open(source, "rb") as file:  # noqa: ASYNC230
                answer = await self._connection.json(call, io.pieces(file, _PIECE_BYTES))
        else:
            answer = await self._connection.json(call, io.pieces(source, _PIECE_BYTES))
        return dict(answer)

    async def read_archive(self, path: AnyPath = "/workspace", *, compress: bool = False) -> AsyncFileStream:
        """Download a directory as a tar archive with modes, times and links.

        Args:
            path: directory to read.
            compress: compress with zstd.
        """
        at = file_calls.read_archive(await self._ready_path(), path, compress)
        return AsyncFileStream(self._connection.url, await self._connection.open(at))

    async def write_archive(
        self, source: str | os.PathLike[str] | io.Source, path: AnyPath = "/workspace"
    ) -> None:
        """Unpack a tar archive, plain or compressed with zstd, into a directory, which is created.

        Existing files of the same names are replaced. After an error, the entries before it stay.

        Args:
            source: name of a local file, a binary file object, or an iterable of bytes.
            path: directory to unpack into.

        Raises:
            BadRequestError: the data is not an archive, or an entry lies outside the directory.
        """
        await self._upload(file_calls.write_archive(await self._ready_path(), path), source)

    async def _file_operation(
        self, op: str, path: AnyPath, to: AnyPath | None = None, **fields: object
    ) -> FileInfo:
        answer = await self._connection.json(
            file_calls.file_operation(await self._ready_path(), op, path, to, **fields)
        )
        return FileInfo.from_json(answer)

    async def stat(self, path: AnyPath, *, follow: bool = True) -> FileInfo:
        """Read metadata of a file or directory.

        Args:
            path: file or directory.
            follow: follow a symbolic link; if false, describe the link.

        Raises:
            NotFoundError: the file does not exist.
        """
        return await self._file_operation("stat", path, follow=follow)

    async def exists(self, path: AnyPath) -> bool:
        """Check whether a path exists. Dangling symbolic links do not.

        Args:
            path: file or directory.
        """
        try:
            answer = await self._connection.json(
                file_calls.file_operation(await self._ready_path(), "exists", path)
            )
        except NotFoundError:
            return False
        return bool(answer["exists"])

    async def mkdir(self, path: AnyPath) -> FileInfo:
        """Create a directory and its parents. No error if it exists.

        Args:
            path: directory to create.

        Returns:
            its metadata.
        """
        return await self._file_operation("mkdir", path)

    async def move_file(self, path: AnyPath, to: AnyPath, *, replace: bool = True) -> FileInfo:
        """Rename a file or directory to exactly ``to``.

        Args:
            path: file or directory to rename.
            to: new path.
            replace: replace an existing file.

        Raises:
            ConflictError: ``exists``, if ``replace`` is false.
        """
        return await self._file_operation("move", path, to, replace=replace)

    async def copy_file(self, path: AnyPath, to: AnyPath, *, replace: bool = True) -> FileInfo:
        """Copy a file, or a directory with its content, to exactly ``to``.

        Args:
            path: file or directory to copy.
            to: path of the copy.
            replace: replace an existing file.

        Raises:
            ConflictError: ``exists``, if ``replace`` is false.
        """
        return await self._file_operation("copy", path, to, replace=replace)

    async def chmod(self, path: AnyPath, mode: int) -> FileInfo:
        """Set permission bits.

        Args:
            path: file or directory.
            mode: for example ``0o755``.
        """
        return await self._file_operation("chmod", path, mode=f"{mode:04o}")

    async def delete_file(self, path: AnyPath, *, recursive: bool = False) -> None:
        """Delete a file, a symbolic link or an empty directory.

        Args:
            path: what to delete.
            recursive: delete a directory with its content.

        Raises:
            NotFoundError: the file does not exist.
            ConflictError: ``not_empty``, if ``recursive`` is false.
        """
        await self._connection.send(file_calls.delete_file(await self._ready_path(), path, recursive))

    async def list_files(
        self,
        path: AnyPath = "/workspace",
        *,
        recursive: bool = False,
        hidden: bool = False,
        glob: str | None = None,
        page: int = 1000,
    ) -> AsyncIterator[FileInfo]:
        """Iterate over a directory's entries, sorted.

        Args:
            path: directory to list.
            recursive: include subdirectories; symbolic links are not followed.
            hidden: include names that start with a dot.
            glob: filter: ``*.py`` matches names, ``src/**/*.py`` matches paths relative to the directory.
            page: number of entries per request, 1 to 10000.

        Raises:
            NotFoundError: the directory does not exist.

        Example:
            async for info in sandbox.list_files("src", recursive=True, glob="*.py"):
                print(info.path, info.size)
        """
        call = file_calls.list_files(
            await self._ready_path(), path, recursive=recursive, hidden=hidden, glob=glob, limit=page
        )
        async for answer in self._connection.pages(call):
            yield FileInfo.from_json(answer)

    async def search(
        self,
        pattern: str,
        path: AnyPath = "/workspace",
        *,
        literal: bool = False,
        ignore_case: bool = False,
        hidden: bool = False,
        ignored: bool = False,
        glob: str | None = None,
        context: int = 0,
        limit: int = 1000,
    ) -> SearchResult:
        """Search a file, or all files in a directory, for lines that match a regular expression.

        Args:
            pattern: expression in the syntax of Rust's ``regex`` crate, matched within lines; at most 4096
                bytes.
            path: file or directory to search.
            literal: treat ``pattern`` as plain text.
            ignore_case: ignore upper and lower case.
            hidden: include files whose names start with a dot.
            ignored: include files that ``.gitignore`` or ``.ignore`` exclude.
            glob: filter, as in :meth:`list_files`.
            context: number of context lines around each match, 0 to 20.
            limit: maximum number of matching lines, 1 to 10000.

        Raises:
            BadRequestError: the pattern is invalid.
        """
        call = file_calls.search(
            await self._ready_path(),
            path,
            pattern,
            literal=literal,
            ignore_case=ignore_case,
            hidden=hidden,
            ignored=ignored,
            glob=glob,
            context=context,
            limit=limit,
        )
        return SearchResult.from_json(await self._connection.json(call))

    async def watch(
        self,
        path: AnyPath = "/workspace",
        *,
        recursive: bool = False,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
    ) -> AsyncWatch:
        """Watch a directory for changes.

        Args:
            path: directory to watch.
            recursive: include subdirectories, at most 8192 directories.
            include: report only changes that match one of these patterns, at most 16. ``*.py`` matches names,
                ``src/**/*.py`` matches paths relative to the directory.
            exclude: do not report changes that match one of these patterns, or that are below a directory
                that does.

        Returns:
            the active watch; changes after this call are included.

        Example:
            async with await sandbox.watch("src") as changes:
                async for change in changes:
                    print(change.type, change.path)
        """
        return await AsyncWatch.begin(
            self._connection,
            file_calls.watch(await self._ready_path(), path_bytes(path), recursive, include, exclude),
        )

    async def changes(
        self,
        since: str = "now",
        path: AnyPath = "/workspace",
        *,
        recursive: bool = True,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        limit: int = 10_000,
    ) -> FileChanges:
        """Find out what changed in a directory since a version.

        Args:
            since: the ``version`` of an earlier answer for the same directory and ``recursive``; by default,
                the answer is the current version and no changes.
            path: directory to compare.
            recursive: include subdirectories, at most 100,000 files.
            include: report only changes that match one of these patterns, as in :meth:`watch`.
            exclude: do not report changes that match one of these patterns, as in :meth:`watch`.
            limit: maximum number of changes, 1 to 10000. If ``more`` is true, continue from ``version``.

        Raises:
            RefusedError: ``version_expired``: take a new version, then list the directory.

        Example:
            before = await sandbox.changes()
            await sandbox.exec("make")
            for change in (await sandbox.changes(before.version)).changes:
                print(change.change, change.path)
        """
        call = file_calls.changes(await self._ready_path(), path, since, recursive, include, exclude, limit)
        return FileChanges.from_json(await self._connection.json(call))


async def _save(stream: AsyncFileStream, file: IO[bytes]) -> int:
    size = 0
    async with stream:
        async for piece in stream:
            await io.write(file, piece)
            size += len(piece)
    return size
