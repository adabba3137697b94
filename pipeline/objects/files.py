"""Objects of a store as `storage.io.files.Files`.

A path is the URL of the root, or one below it. An object appears whole, durably, or not at all, so there is nothing to
sync but the bytes of an open file: `File.sync` uploads them, and without it they are dropped. Folders exist only in
names. `replace` copies and deletes: after an interruption both names may exist. `create` is the operation that decides
between two writers: it fails if the object exists. `lock` is described in `lock`.

Errors are OSError, without the text of requests, which may have signatures.
"""

from __future__ import annotations

import errno
import io
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any, NamedTuple
from urllib.parse import quote

import obstore
from obstore import exceptions

from ...storage.io.files import File, Files
from . import web
from .lock import ObjectLock, Timing

AHEAD_BYTES = 64 << 10
"""Read after the requested bytes: the header of the next batch is there."""

TAIL_BYTES = 64 << 10
"""Read at once where the last bytes are wanted: the footers of most Parquet files."""

PARALLEL = 16
"""Requests at the same time, where there are many."""

_MEMORY_BYTES = 1 << 20  # of a file that is being written; the rest is in a temporary file without a name
_PART_BYTES = 8 << 20
_PART_UPLOADS = 4
_DELETED_AT_ONCE = 1000
_DEPTH_MAX = 16  # a folder of a web server may have a link to one above it
_SHOWN = 200
_XML = re.compile(r"<(Code|Message)>([^<]*)</")
_STATUS = re.compile(r"status code: ([0-9]{3}[A-Za-z ]*)")
_QUERY = re.compile(r"\?[^\s\"')]*")


class Conflict(OSError):
    """An object is no longer the one that was to be replaced."""


class Found(NamedTuple):
    """An object with its version in the store."""

    data: bytes
    tag: str


class Listed(NamedTuple):
    path: str
    size_bytes: int
    modified_ms: int


@contextmanager
def _errors(path: str) -> Iterator[None]:
    """Turns the library's errors into OSError with the path, without their details."""
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, _brief(error, "there is no such object"), path) from None
    except exceptions.AlreadyExistsError:
        raise FileExistsError(errno.EEXIST, "the object exists", path) from None
    except exceptions.PreconditionError:
        raise Conflict(errno.EBUSY, "the object was replaced meanwhile", path) from None
    except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
        raise PermissionError(errno.EACCES, _brief(error, "no permission"), path) from None
    except exceptions.BaseError as error:
        raise OSError(errno.EIO, _brief(error, "the store failed"), path) from None


def _brief(error: Exception, otherwise: str) -> str:
    """Returns the store's code and message, else the status, else the first line; never a query or a signature."""
    text = str(error)
    if found := dict(_XML.findall(text)):
        brief = ": ".join(found[name] for name in ("Code", "Message") if found.get(name))
    elif status := _STATUS.search(text):
        brief = f"{otherwise}: status {status[1].strip()}"
    else:
        brief = _QUERY.sub("", text.partition("\n")[0]) or otherwise
    return brief if len(brief) <= _SHOWN else brief[: _SHOWN - 3] + "..."


def _head(store: Any, key: str) -> Any:
    """Returns the facts of an object."""
    try:
        return obstore.head(store, key)
    except exceptions.GenericError as error:
        if "Content-Length Header missing" not in str(error):
            raise
        # The response of Apache httpd to HEAD has no length if the file is empty.
        return obstore.get(store, key).meta


class OpenObject:
    """An object open for reading. Memory: the bytes of the last read, and some after them.

    The bytes that the last read and the next one have in common are not requested again. Raises OSError.
    """

    def __init__(self, files: ObjectFiles, path: str) -> None:
        self._files, self._path = files, path
        self._size = files.size(path)
        self._start = 0
        self._kept = b""

    def size(self) -> int:
        return self._size

    def read(self, position: int, length: int) -> bytes:
        end = position + length
        if end > self._size:
            raise OSError(errno.EIO, f"object ends {end - self._size} bytes early", self._path)
        at = position - self._start
        if at < 0 or at > len(self._kept):
            at, self._kept = 0, b""
        if at + end - position > len(self._kept):
            front = self._kept[at:]
            begin = position + len(front)
            more = min(end + AHEAD_BYTES, self._size) - begin
            self._kept, self._start, at = front + self._files.range(self._path, begin, more), position, 0
        return self._kept[at : at + end - position]

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        raise OSError(errno.EROFS, "objects are written as a whole", self._path)

    def truncate(self, size: int) -> None:
        raise OSError(errno.EROFS, "objects are written as a whole", self._path)

    def sync(self) -> None:
        pass

    def close(self) -> None:
        self._kept = b""


class _Upload:
    """A new object: its bytes are kept here until `sync`, which uploads them and replaces an object of that name."""

    def __init__(self, files: ObjectFiles, path: str) -> None:
        self._files, self._path = files, path
        self._kept: Any = tempfile.SpooledTemporaryFile(max_size=_MEMORY_BYTES)  # noqa: SIM115

    def size(self) -> int:
        return self._kept.seek(0, 2)

    def read(self, position: int, length: int) -> bytes:
        self._kept.seek(position)
        data = self._kept.read(length)
        if len(data) != length:
            raise OSError(errno.EIO, f"file ends {length - len(data)} bytes early", self._path)
        return data

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        self._kept.seek(position)
        self._kept.write(data)

    def truncate(self, size: int) -> None:
        self._kept.truncate(size)

    def sync(self) -> None:
        self._kept.seek(0)
        self._files._put_file(self._path, self._kept)

    def close(self) -> None:
        self._kept.close()


class ObjectFiles(Files):
    """The objects at and below a URL. Thread-safe.

    While this holds a lock, nothing is changed any more once the lock may have been lost: LockLost.
    """

    def __init__(self, root: str, store: Any, *, timing: Timing | None = None) -> None:
        self.root = root
        self.store = store
        self._timing = timing or Timing()
        self._lock: ObjectLock | None = None

    def _key(self, path: str) -> str:
        if path == self.root:
            return ""
        if not path.startswith(self.root + "/"):
            raise OSError(errno.EXDEV, f"not below {self.root}", path)
        return path[len(self.root) + 1 :]

    def check(self) -> None:
        """Raises LockLost if this took a lock and may have lost it."""
        if self._lock is not None:
            self._lock.check()

    def renew(self) -> None:
        """Renews the lock of this. Raises LockLost if another process has it, OSError."""
        if self._lock is not None:
            self._lock.renew()

    # -- Files

    def open(self, path: str, *, create: bool = False) -> File:
        """Opens an object to read it, or with `create` begins a new one, which replaces an older one at `sync`."""
        return _Upload(self, path) if create else OpenObject(self, path)

    def read_bytes(self, path: str) -> bytes:
        return self.get(path).data

    def size(self, path: str) -> int:
        with _errors(path):
            return int(_head(self.store, self._key(path))["size"])

    def exists(self, path: str) -> bool:
        """Returns whether there is an object with this name; a folder is none."""
        try:
            with _errors(path):
                _head(self.store, self._key(path))
        except FileNotFoundError:
            return False
        return True

    def modified_ns(self, path: str) -> int:
        with _errors(path):
            return int(_head(self.store, self._key(path))["last_modified"].timestamp() * 1e9)

    def set_modified_ns(self, path: str, modified_ns: int) -> None:
        pass  # the store sets it

    def copy_mode(self, source: str, target: str) -> bool:
        return False

    def list(self, path: str) -> list[str]:
        """Returns the names of the objects and folders directly below a path. Raises FileNotFoundError for a folder
        without an object: there is none."""
        return list(self.entries(path))

    def entries(self, path: str) -> dict[str, int | None]:
        """Returns the names of `list`, with the sizes of objects."""
        if self.root.lower().startswith(web.SCHEMES):
            return self._linked(path)
        key = self._key(path)
        with _errors(path):
            found = obstore.list_with_delimiter(self.store, key or None)
        paths: dict[str, int | None] = dict.fromkeys(found["common_prefixes"])
        paths |= {one["path"]: int(one["size"]) for one in found["objects"]}
        names = {name: size for one, size in paths.items() if (name := one.rpartition("/")[2])}
        if not names:
            raise FileNotFoundError(errno.ENOENT, "there is no object", path)
        return names

    def _linked(self, path: str) -> dict[str, int | None]:
        """Returns the names in a folder of a web server, with sizes by a request for each file."""
        found = web.names(f"{self.root}/{quote(self._key(path))}".rstrip("/"), self.store.client_options or {})
        files = [name for name in found if not name.endswith("/")]

        def size(name: str) -> int | None:
            with suppress(FileNotFoundError):  # removed meanwhile
                return self.size(f"{path}/{name}")
            return None

        with ThreadPoolExecutor(PARALLEL) as pool:
            sizes = {name: size for name, size in zip(files, pool.map(size, files), strict=True) if size is not None}
        return {**{name[:-1]: None for name in found if name.endswith("/")}, **sizes}

    def make_directory(self, path: str) -> None:
        pass

    def replace(self, source: str, target: str) -> None:
        """Copies in the store, then deletes the source. A reader finds the old target or the new one."""
        self.copy(source, target)
        self.remove(source)

    def remove(self, path: str) -> None:
        """Deletes an object. Some stores, such as S3, do not report a missing one."""
        self.check()
        with _errors(path):
            obstore.delete(self.store, self._key(path))

    def remove_directory(self, path: str) -> None:
        pass

    def sync_directory(self, path: str) -> None:
        pass

    def lock(self, path: str) -> ObjectLock:
        """Takes the lock. An abandoned one is taken over once it was not renewed for the time of a lease, during which
        this waits. Raises BlockingIOError if its owner is alive, OSError."""
        self._lock = None
        lock = ObjectLock(self, path, self._timing)
        self._lock = lock
        return lock

    # -- what objects have besides

    def get(self, path: str) -> Found:
        with _errors(path):
            found = obstore.get(self.store, self._key(path))
            return Found(found.bytes().to_bytes(), found.meta["e_tag"] or "")

    def put(self, path: str, data: bytes) -> None:
        """Writes an object, replacing an older one."""
        self.check()
        with _errors(path):
            obstore.put(self.store, self._key(path), data, use_multipart=False)

    def _put_file(self, path: str, file: Any) -> None:
        self.check()
        with _errors(path):
            obstore.put(self.store, self._key(path), file, chunk_size=_PART_BYTES, max_concurrency=_PART_UPLOADS)

    def create(self, path: str, data: bytes) -> str:
        """Writes an object that must not exist, and returns its version. Raises FileExistsError for one with other
        bytes: one with these is that of a request whose response was lost."""
        self.check()
        try:
            with _errors(path):
                return obstore.put(self.store, self._key(path), data, mode="create")["e_tag"] or ""
        except (FileExistsError, Conflict):
            if (tag := self._tag_of(path, data)) is not None:
                return tag
            raise FileExistsError(errno.EEXIST, "the object exists", path) from None

    def swap(self, path: str, data: bytes, tag: str) -> str:
        """Replaces an object of this version, and returns the new version. Raises Conflict if it is another one."""
        try:
            with _errors(path):
                return obstore.put(self.store, self._key(path), data, mode={"e_tag": tag})["e_tag"] or ""
        except (FileNotFoundError, FileExistsError, Conflict):
            if (found := self._tag_of(path, data)) is not None:
                return found
            raise Conflict(errno.EBUSY, "the object was replaced meanwhile", path) from None

    def _tag_of(self, path: str, data: bytes) -> str | None:
        """Returns the version of an object with these bytes; None for another one."""
        with suppress(FileNotFoundError):
            found = self.get(path)
            return found.tag if found.data == data else None
        return None

    def copy(self, source: str, target: str) -> None:
        """Copies in the store. Raises FileNotFoundError without the source."""
        self.check()
        with _errors(source):
            obstore.copy(self.store, self._key(source), self._key(target))

    def copy_all(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Copies each source to its target, several at the same time. Raises the first error, once all that began have
        ended."""
        with ThreadPoolExecutor(PARALLEL) as pool:
            list(pool.map(lambda pair: self.copy(*pair), pairs))

    def remove_all(self, paths: Iterable[str]) -> None:
        """Deletes objects, missing ones as well; on S3 a thousand in one request."""
        rest = iter(paths)
        while some := list(islice(rest, _DELETED_AT_ONCE)):
            self.check()
            with suppress(FileNotFoundError), _errors(some[0]):
                obstore.delete(self.store, [self._key(path) for path in some])

    def read_each(self, paths: Iterable[str]) -> Iterator[bytes]:
        """Yields the bytes of each object, in order; reads several at the same time."""
        rest = iter(paths)
        with ThreadPoolExecutor(PARALLEL) as pool:
            while some := list(islice(rest, 4 * PARALLEL)):
                yield from pool.map(self.read_bytes, some)

    def below(self, path: str) -> Iterator[Listed]:
        """Yields all objects below a path, in order of their names. A web server shows no time of a change."""
        if self.root.lower().startswith(web.SCHEMES):
            yield from self._linked_below(path, _DEPTH_MAX)
            return
        with _errors(path):
            for some in obstore.list(self.store, self._key(path) or None):
                for one in some:
                    if one["path"]:
                        modified_ms = int(one["last_modified"].timestamp() * 1000)
                        yield Listed(f"{self.root}/{one['path']}", int(one["size"]), modified_ms)

    def _linked_below(self, path: str, depth: int) -> Iterator[Listed]:
        if not depth:
            raise OSError(errno.ELOOP, f"there are more than {_DEPTH_MAX} folders in one another", path)
        for name, size in sorted(self.entries(path).items()):
            if size is not None:
                yield Listed(f"{path}/{name}", size, 0)
                continue
            with suppress(FileNotFoundError):  # an empty folder, or one that was removed meanwhile
                yield from self._linked_below(f"{path}/{name}", depth - 1)

    def range(self, path: str, position: int, length: int) -> bytes:
        """Returns bytes of an object, fewer at its end."""
        with _errors(path):
            return obstore.get_range(self.store, self._key(path), start=position, length=length).to_bytes()


class ObjectTree(ObjectFiles):
    """Objects for reading. The sizes of a list are those of the objects in it: no request for each of them."""

    def __init__(self, files: ObjectFiles) -> None:
        super().__init__(files.root, files.store)
        self._sizes: dict[str, dict[str, int]] = {}

    def list(self, path: str) -> list[str]:
        found = self.entries(path)
        self._sizes[path] = {name: size for name, size in found.items() if size is not None}
        return list(found)

    def size(self, path: str) -> int:
        folder, _, name = path.rpartition("/")
        known = self._sizes.get(folder, {}).get(name)
        return super().size(path) if known is None else known


class ObjectReader(io.RawIOBase):
    """An object open for reading. Memory: the bytes of one read, and the tail. Raises OSError."""

    def __init__(self, files: ObjectFiles, path: str) -> None:
        self._files, self._path = files, path
        self._size = files.size(path)
        self._position = 0
        self._tail: bytes | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, start + offset)
        return self._position

    def tell(self) -> int:  # words: quoted
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._size - self._position)
        length = left if size is None or size < 0 else min(size, left)
        data = self._range(self._position, length) if length else b""
        self._position += len(data)
        return data

    def readall(self) -> bytes:
        return self.read()

    def _range(self, position: int, length: int) -> bytes:
        first = max(0, self._size - TAIL_BYTES)
        if position < first:
            return self._files.range(self._path, position, length)
        if self._tail is None:
            self._tail = self._files.range(self._path, first, self._size - first)
        return self._tail[position - first : position - first + length]
