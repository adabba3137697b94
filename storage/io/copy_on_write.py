"""A copy-on-write file system: changes are kept in an overlay, and the file system below stays unchanged.

With it a repair can be run to its end and reported without changing anything. Written bytes, of any size, are in one
temporary file; unchanged bytes are read from below.
"""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile

from ...protocol.named import NamedTuple
from .files import DiskFile, DiskFiles, File, Files, Lock

_COPY_BYTES = 1 << 20


class ReadOnlyFiles(DiskFiles):
    """The real disk, with files opened for reading only."""

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        return DiskFile(path, os.open(path, os.O_RDONLY | os.O_CLOEXEC))


class _Piece(NamedTuple):
    """Bytes of a file below, or of the temporary file if `path` is None."""

    path: str | None
    start: int
    length: int


class _Node:
    def __init__(self, pieces: list[_Piece], modified_ns: int) -> None:
        self.pieces = pieces
        self.modified_ns = modified_ns

    @property
    def size(self) -> int:
        return sum(piece.length for piece in self.pieces)

    def between(self, start: int, end: int) -> list[_Piece]:
        """Returns the pieces of a byte range."""
        found: list[_Piece] = []
        at = 0
        for path, begin, length in self.pieces:
            low, high = max(start, at), min(end, at + length)
            if low < high:
                found.append(_Piece(path, begin + low - at, high - low))
            at += length
        return found


class _OverlayFile:
    """An open file; see `files.File`."""

    def __init__(self, overlay: Overlay, path: str, node: _Node) -> None:
        self._overlay, self._path, self._node = overlay, path, node
        self._below: dict[str, File] = {}

    def size(self) -> int:
        return self._node.size

    def read(self, position: int, length: int) -> bytes | memoryview:
        pieces = self._node.between(position, position + length)
        if sum(piece.length for piece in pieces) != length:
            raise OSError(errno.EIO, "file ends early", self._path)
        parts = [self._read(piece) for piece in pieces]
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _read(self, piece: _Piece) -> bytes | memoryview:
        if piece.path is None:
            return self._overlay.written(piece.start, piece.length)
        if piece.path not in self._below:
            self._below[piece.path] = self._overlay.below.open(piece.path)
        return self._below[piece.path].read(piece.start, piece.length)

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        node = self._node
        if position > node.size:
            self.write(node.size, bytes(position - node.size))
        rest = node.between(position + len(data), node.size)
        new = [_Piece(None, self._overlay.keep(data), len(data))] if len(data) else []
        pieces: list[_Piece] = []
        for piece in [*node.between(0, position), *new, *rest]:
            last = pieces[-1] if pieces else None
            if last is not None and last.path == piece.path and last.start + last.length == piece.start:
                pieces[-1] = _Piece(last.path, last.start, last.length + piece.length)
            else:
                pieces.append(piece)
        node.pieces = pieces

    def truncate(self, size: int) -> None:
        if size > self._node.size:
            self.write(size, b"")
        self._node.pieces = self._node.between(0, size)

    def sync(self) -> None:
        pass

    def close(self) -> None:
        for file in self._below.values():
            file.close()
        self._below.clear()


class Overlay:
    """A copy-on-write `Files`, and a context manager that drops the changes on exit. Folders cannot be renamed."""

    def __init__(self, below: Files) -> None:
        self.below = below
        self._nodes: dict[str, _Node | None] = {}  # None: removed
        self._folders: dict[str, bool] = {}  # False: removed
        self._written = tempfile.TemporaryFile()  # noqa: SIM115  (closed by __exit__)
        self._end = 0

    def __enter__(self) -> Overlay:
        return self

    def __exit__(self, *_: object) -> None:
        self._written.close()

    def keep(self, data: bytes | bytearray | memoryview) -> int:
        """Stores bytes in the temporary file and returns their position."""
        at, done = self._end, 0
        with memoryview(data) as view:
            while done < len(view):
                done += os.pwrite(self._written.fileno(), view[done : done + _COPY_BYTES], at + done)
        self._end += done
        return at

    def written(self, start: int, length: int) -> bytes:
        """Returns stored bytes."""
        return os.pread(self._written.fileno(), length, start)

    def _node(self, path: str) -> _Node | None:
        if path not in self._nodes:
            try:
                size, modified_ns = self.below.size(path), self.below.modified_ns(path)
            except (FileNotFoundError, NotADirectoryError):
                return None
            self._nodes[path] = _Node([_Piece(path, 0, size)] if size else [], modified_ns)
        return self._nodes[path]

    def _existing(self, path: str) -> _Node:
        node = self._node(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return node

    # -- Files

    def open(self, path: str, *, create: bool = False) -> _OverlayFile:
        node = self._node(path)
        if node is None and create:
            self.list(os.path.dirname(path))
            node = self._nodes[path] = _Node([], 0)
        return _OverlayFile(self, path, node or self._existing(path))

    def read_bytes(self, path: str) -> bytes:
        with contextlib.closing(self.open(path)) as file:
            return bytes(file.read(0, file.size()))

    def size(self, path: str) -> int:
        return self._existing(path).size

    def exists(self, path: str) -> bool:
        if path in self._folders:
            return self._folders[path]
        if path in self._nodes:
            return self._nodes[path] is not None
        return self.below.exists(path)

    def modified_ns(self, path: str) -> int:
        return self._existing(path).modified_ns

    def set_modified_ns(self, path: str, modified_ns: int) -> None:
        self._existing(path).modified_ns = modified_ns

    def copy_mode(self, source: str, target: str) -> bool:
        return False

    def list(self, path: str) -> list[str]:
        known = self._folders.get(path)
        if known is False:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        names = set(self.below.list(path)) if known is None else set[str]()
        for changed, there in (*self._nodes.items(), *self._folders.items()):
            if os.path.dirname(changed) == path:
                (names.add if there not in (None, False) else names.discard)(os.path.basename(changed))
        return sorted(names)

    def make_directory(self, path: str) -> None:
        if not self.exists(path):
            self._folders[path] = True

    def replace(self, source: str, target: str) -> None:
        self._nodes[target] = self._existing(source)
        self._nodes[source] = None

    def remove(self, path: str) -> None:
        self._existing(path)
        self._nodes[path] = None

    def remove_directory(self, path: str) -> None:
        if self.list(path):
            raise OSError(errno.ENOTEMPTY, "not empty", path)
        self._folders[path] = False

    def sync_directory(self, path: str) -> None:
        pass

    def lock(self, path: str) -> Lock:
        return self.below.lock(path)
