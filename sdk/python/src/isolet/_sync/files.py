"""Files of a sandbox, or as one of its sessions sees them."""
# Made by tools/make_sync.py from its async twin: change that one.

from __future__ import annotations

import os
from collections.abc import Iterator
from types import TracebackType
from typing import IO, TYPE_CHECKING

import httpx

from .. import file_calls, transport
from ..calls import Call
from ..errors import ConflictError, NotFoundError
from ..models import FileInfo, SavedFile, SearchResult
from ..values import AnyPath, path_bytes
from . import io
from .events import Watch

if TYPE_CHECKING:
    from .client import Connection

#: What goes from a local file at once, in bytes.
_PIECE_BYTES = 256 * 1024


def _pieces(url: str, response: httpx.Response) -> Iterator[bytes]:
    # Knows nothing of the stream that it is read through: that is let go at once when it is left.
    try:
        for piece in response.iter_bytes():
            yield piece
    except httpx.TransportError as error:
        raise transport.unreachable(url, error) from error
    finally:
        response.close()


class FileStream:
    """A file's bytes as they come. Use it in ``with`` and ``for``, or close it."""

    def __init__(self, url: str, response: httpx.Response) -> None:
        self._response = response
        length = response.headers.get("content-length")
        #: How many bytes come; ``None`` where the kernel makes them while they are read.
        self.size = None if length is None else int(length)
        #: Changes with the file; ``None`` for an archive.
        self.etag: str | None = response.headers.get("etag")
        self._pieces = _pieces(url, response)

    def __iter__(self) -> FileStream:
        return self

    def __next__(self) -> bytes:
        return self._pieces.__next__()

    def read(self) -> bytes:
        """All that is left."""
        parts = [piece for piece in self]
        return b"".join(parts)

    def __enter__(self) -> FileStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends it; what has not come does not come."""
        self._response.close()


class Files:
    """The file calls of one sandbox, or of one of its sessions.

    A path is text, bytes or a ``PurePosixPath``; one without a leading slash begins in ``/workspace``.
    It is looked up inside the sandbox, so no link leads out of it.

    Raises:
        NotFoundError: there is no such file.
        ForbiddenError: ``denied``, or a session was granted reading alone.
        ConflictError: ``wrong_kind``, ``exists``, ``not_empty``.
        ServerError: ``no_space``: the sandbox's disk, or the server's, is full.
    """

    _connection: Connection

    def _at(self) -> str:
        raise NotImplementedError

    def write_file(
        self,
        path: AnyPath,
        content: str | bytes,
        *,
        mode: int | None = None,
        append: bool = False,
        fsync: bool = False,
    ) -> SavedFile:
        """Writes a whole file: a reader sees the old one or the new one. Parents are made.

        Args:
            path: where.
            content: text is written as UTF-8.
            mode: permission bits; a new file has 0o644 unless told, an old one keeps its own.
            append: to the end of what is there.
            fsync: it is on the disk, file and name, before this returns.
        """
        body = content.encode() if isinstance(content, str) else content
        call = file_calls.write_file(self._at(), path, mode=mode, append=append, fsync=fsync)
        return SavedFile.of(self._connection.json(file_calls.whole(call, body)))

    def read_file(self, path: AnyPath, *, encoding: str = "utf-8", errors: str = "replace") -> str:
        """Reads a whole file as text."""
        return (self.read_bytes(path)).decode(encoding, errors)

    def read_bytes(self, path: AnyPath, *, start: int = 0, length: int | None = None) -> bytes:
        """Reads a file, or ``length`` bytes of it from ``start`` on, as far as it has them.

        Raises:
            BadRequestError: ``bad_range``: the file ends before ``start``.
        """
        with self.stream_file(path, start=start, length=length) as stream:
            return stream.read()

    def stream_file(
        self, path: AnyPath, *, start: int = 0, length: int | None = None
    ) -> FileStream:
        """A file's bytes, or a part of them, as they come."""
        response = self._connection.open(file_calls.read_file(self._at(), path, start, length))
        stream = FileStream(self._connection.url, response)
        if response.headers.get("content-type") == "application/json":
            # A directory is answered with its list.
            stream.close()
            raise ConflictError(f"{path!r} is a directory", code="wrong_kind", hint="list it", status=409)
        return stream

    def upload(
        self,
        source: str | os.PathLike[str] | io.Source,
        path: AnyPath,
        *,
        mode: int | None = None,
        fsync: bool = False,
    ) -> SavedFile:
        """Writes a file piece by piece; one that breaks off changes nothing. Never sent again.

        Args:
            source: a local file's name, an open file (in binary), or pieces of bytes.
            path: where.
            mode: permission bits; a new file has 0o644 unless told, an old one keeps its own.
            fsync: it is on the disk, file and name, before this returns.
        """
        call = file_calls.write_file(self._at(), path, mode=mode, fsync=fsync)
        return SavedFile.of(self._put(call, source))

    def download(self, path: AnyPath, to: str | os.PathLike[str] | IO[bytes]) -> int:
        """Reads a file into a local one; gives how many bytes it has.

        Args:
            path: what.
            to: a local name, whose file is replaced, or an open file (in binary).
        """
        stream = self.stream_file(path)
        if isinstance(to, (str, os.PathLike)):
            with open(to, "wb") as file:
                return _save(stream, file)
        return _save(stream, to)

    def _put(self, call: Call, source: str | os.PathLike[str] | io.Source) -> dict[str, object]:
        if isinstance(source, (str, os.PathLike)):
            with open(source, "rb") as file:
                told = self._connection.json(call, io.pieces(file, _PIECE_BYTES))
        else:
            told = self._connection.json(call, io.pieces(source, _PIECE_BYTES))
        return dict(told)

    def read_archive(self, path: AnyPath = "/workspace", *, compress: bool = False) -> FileStream:
        """A directory as a tar archive, with modes, times and links.

        Args:
            path: which directory; ``/workspace`` unless told.
            compress: with zstd.
        """
        at = file_calls.read_archive(self._at(), path, compress)
        return FileStream(self._connection.url, self._connection.open(at))

    def write_archive(
        self, source: str | os.PathLike[str] | io.Source, path: AnyPath = "/workspace"
    ) -> None:
        """Unpacks a tar archive, plain or compressed with zstd, into a directory, which is made.

        What is there under the same names is replaced; what came before a fault stays.

        Args:
            source: a local file's name, an open file (in binary), or pieces of bytes.
            path: which directory; ``/workspace`` unless told.

        Raises:
            BadRequestError: it is no archive, or an entry would lie outside of the directory.
        """
        self._put(file_calls.write_archive(self._at(), path), source)

    def _order(self, op: str, path: AnyPath, to: AnyPath | None = None, **fields: object) -> FileInfo:
        told = self._connection.json(file_calls.order(self._at(), op, path, to, **fields))
        return FileInfo.of(told)

    def stat(self, path: AnyPath, *, follow: bool = True) -> FileInfo:
        """What is under a name; with ``follow=False`` of a link itself."""
        return self._order("stat", path, follow=follow)

    def exists(self, path: AnyPath) -> bool:
        """Whether there is something under a name. A link counts when it leads somewhere."""
        try:
            told = self._connection.json(file_calls.order(self._at(), "exists", path))
        except NotFoundError:
            return False
        return bool(told["exists"])

    def mkdir(self, path: AnyPath) -> FileInfo:
        """Makes a directory with its parents; no error where it is there."""
        return self._order("mkdir", path)

    def move_file(self, path: AnyPath, to: AnyPath, *, replace: bool = True) -> FileInfo:
        """Gives a file or directory another name, ``to`` itself.

        Raises:
            ConflictError: ``exists``, without ``replace``.
        """
        return self._order("move", path, to, replace=replace)

    def copy_file(self, path: AnyPath, to: AnyPath, *, replace: bool = True) -> FileInfo:
        """Copies a file, or a directory with all it holds, under the name ``to`` itself."""
        return self._order("copy", path, to, replace=replace)

    def chmod(self, path: AnyPath, mode: int) -> FileInfo:
        """Sets permission bits."""
        return self._order("chmod", path, mode=f"{mode:04o}")

    def delete_file(self, path: AnyPath, *, recursive: bool = False) -> None:
        """Removes a file, a link or an empty directory; with ``recursive`` a directory and all it holds."""
        self._connection.send(file_calls.delete_file(self._at(), path, recursive))

    def list_files(
        self,
        path: AnyPath = "/workspace",
        *,
        recursive: bool = False,
        hidden: bool = False,
        glob: str | None = None,
        page: int = 1000,
    ) -> Iterator[FileInfo]:
        """What a directory holds, sorted, page after page.

        Args:
            path: which directory.
            recursive: all below it; no link is followed.
            hidden: also names that begin with a dot.
            glob: ``*.py`` is for names, ``src/**/*.py`` for paths below the directory.
            page: how many are asked for at once, 1 to 10000.
        """
        call = file_calls.list_files(
            self._at(), path, recursive=recursive, hidden=hidden, glob=glob, limit=page
        )
        for told in self._connection.pages(call):
            yield FileInfo.of(told)

    def search(
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
        """Lines that match a regular expression, in a file or in all files below a directory.

        Args:
            pattern: of Rust's ``regex`` crate, within one line; at most 4096 bytes.
            path: which file or directory.
            literal: the pattern means itself.
            ignore_case: letters match whatever their case.
            hidden: also files whose names begin with a dot.
            ignored: also what ``.gitignore`` and ``.ignore`` leave out.
            glob: as for lists.
            context: lines beside each match, 0 to 20.
            limit: matching lines, 1 to 10000.
        """
        call = file_calls.search(
            self._at(),
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
        return SearchResult.of(self._connection.json(call))

    def watch(self, path: AnyPath = "/workspace", *, recursive: bool = False) -> Watch:
        """What happens in a directory, from now on.

        Args:
            path: which directory.
            recursive: also in all below it, at most 8192.
        """
        return Watch.begin(
            self._connection, file_calls.watch(self._at(), path_bytes(path), recursive)
        )


def _save(stream: FileStream, file: IO[bytes]) -> int:
    size = 0
    with stream:
        for piece in stream:
            io.write(file, piece)
            size += len(piece)
    return size
