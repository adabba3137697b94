"""Object stores (Amazon S3 and compatible ones, Google Cloud Storage, Azure) as file systems.

`places` has the URLs and settings, `files` the interface `storage.io.files.Files` over objects, `web` the lists of web
servers, `lock` the lock of a prefix, `reading` the files that are read by position. Needs the extra `objects`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...storage.io.files import Files


def read_each(files: Files, paths: Iterable[str]) -> Iterator[bytes]:
    """Yields the bytes of each file, in order; those of objects are read several at the same time."""
    many = getattr(files, "read_each", None)
    return many(paths) if many is not None else map(files.read_bytes, paths)
