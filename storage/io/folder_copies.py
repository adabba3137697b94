"""Copies and removals of whole folders through `Files`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator, Sequence

from ...protocol.named import NamedTuple
from ..errors import StorageError
from .files import File, Files

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
            copy_file(files, old, new, entry.size)
        files.copy_mode(old, new)


def copy_file(files: Files, source: str, target: str, listed_bytes: int | None = None) -> None:
    """Copies a file to a new one, with its modification time, without a sync. Raises OSError, and StorageError if it no
    longer has the size that it was listed with."""
    with contextlib.closing(files.open(source)) as reading:
        size = reading.size()
        if listed_bytes not in (None, size):
            raise StorageError(f"{source} has {size} bytes, and had {listed_bytes} when it was listed")
        with contextlib.closing(files.open(target, create=True)) as writing:
            copy_bytes(reading, 0, size, writing, 0)
    files.set_modified_ns(target, files.modified_ns(source))


def copy_bytes(source: File, start: int, end: int, target: File, at: int) -> None:
    """Copies a range of one open file to a position of another. Raises OSError."""
    for position in range(start, end, _COPY_BYTES):
        target.write(at + position - start, source.read(position, min(_COPY_BYTES, end - position)))


def sync(files: Files, root: str, found: Sequence[Entry]) -> None:
    """Makes copied entries durable, with their root. All files are written before the first one is synced, so that the
    first sync of a journalling file system does the work of most others. Raises OSError."""
    for entry in found:
        if entry.size is not None:
            with contextlib.closing(files.open(os.path.join(root, entry.name))) as file:
                file.sync()
    for entry in reversed(found):
        if entry.size is None:
            files.sync_directory(os.path.join(root, entry.name))
    files.sync_directory(root)


def remove_tree(files: Files, path: str) -> None:
    """Removes a file, or a folder with its contents, if it exists; of a link only the link. Raises OSError."""
    try:
        files.remove(path)
        return
    except FileNotFoundError:
        return
    except (IsADirectoryError, PermissionError) as error:  # macOS reports a folder as EPERM
        try:
            names = files.list(path)
        except NotADirectoryError:
            raise error from None
    for name in names:
        remove_tree(files, os.path.join(path, name))
    files.remove_directory(path)
