"""Copies and removals of whole folders through `Files`."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence

from ...protocol.named import NamedTuple
from ..errors import StorageError
from .files import Files

_COPY_BYTES = 1 << 20
_BLOCK_BYTES = 4096


class Entry(NamedTuple):
    """A file or a folder below a root, by its relative path; `size` in bytes, None for a folder."""

    name: str
    size: int | None


def entries(files: Files, root: str, left_out: Collection[str] = ()) -> list[Entry]:
    """Returns the files and folders below a root, each folder before its contents; links are followed. `left_out` are
    names directly below the root. Raises OSError."""
    names = [name for name in files.list(root) if name not in left_out]
    return list(_below(files, root, "", names))


def _below(files: Files, root: str, folder: str, names: Sequence[str]) -> Iterator[Entry]:
    for name in sorted(names):
        relative = os.path.join(folder, name)
        path = os.path.join(root, relative)
        try:
            inside = files.list(path)
        except NotADirectoryError:
            yield Entry(relative, files.size(path))
        else:
            yield Entry(relative, None)
            yield from _below(files, root, relative, inside)


def room_for(found: Sequence[Entry]) -> int:
    """Returns the disk space of copies of these entries in bytes, in whole blocks."""
    return sum(_BLOCK_BYTES * max(1, -(-(entry.size or 0) // _BLOCK_BYTES)) for entry in found)


def copy(files: Files, source: str, target: str, found: Sequence[Entry]) -> None:
    """Copies entries into an existing folder, with permissions and modification times, without a sync. Raises OSError,
    and StorageError if the source has changed since its entries were listed."""
    for entry in found:
        old, new = os.path.join(source, entry.name), os.path.join(target, entry.name)
        if entry.size is None:
            files.make_directory(new)
        else:
            _copy_file(files, old, new, entry.size)
        files.copy_mode(old, new)


def _copy_file(files: Files, source: str, target: str, size: int) -> None:
    reading = files.open(source)
    try:
        if reading.size() != size:
            raise StorageError(f"{source} has {reading.size()} bytes, and had {size} when it was listed")
        writing = files.open(target, create=True)
        try:
            for position in range(0, size, _COPY_BYTES):
                writing.write(position, reading.read(position, min(_COPY_BYTES, size - position)))
        finally:
            writing.close()
    finally:
        reading.close()
    files.set_modified_ns(target, files.modified_ns(source))


def sync(files: Files, root: str, found: Sequence[Entry]) -> None:
    """Makes copied entries durable, with their root. All files are written before the first one is synced, so that the
    first sync of a journalling file system does the work of most others. Raises OSError."""
    for entry in found:
        if entry.size is not None:
            file = files.open(os.path.join(root, entry.name))
            try:
                file.sync()
            finally:
                file.close()
    for entry in reversed(found):
        if entry.size is None:
            files.sync_directory(os.path.join(root, entry.name))
    files.sync_directory(root)


def remove_tree(files: Files, path: str) -> None:
    """Removes a file, or a folder with its contents; of a link only the link. Raises OSError."""
    try:
        files.remove(path)
        return
    except (IsADirectoryError, PermissionError) as error:  # macOS reports a folder as EPERM
        try:
            names = files.list(path)
        except NotADirectoryError:
            raise error from None
    for name in names:
        remove_tree(files, os.path.join(path, name))
    files.remove_directory(path)
