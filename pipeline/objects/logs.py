"""The files of a log's path, be it on this machine, the URL of objects, or that of a log with tiered storage.

`use` makes the places of URLs known to a process; `files_of` then returns the files of any path. Objects are read by
ranges, ahead of the position, in bounded memory. A copy of a log in an object store is one at rest: no broker uses it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from ...storage import inspect
from ...storage.io.files import Files
from ..backend import as_read_error
from ..extras import needed
from .places import TIERED, Place, StoreError, is_url
from .tiered import TieredPlace, TieredTree

LogPlace: TypeAlias = "Place | TieredPlace"

_places: dict[str, LogPlace] = {}
_trees: dict[LogPlace, Files] = {}


def places_of(paths: Iterable[str], conf: Mapping[str, str] | None = None) -> tuple[LogPlace, ...]:
    """Returns the places of those paths that are URLs, and makes them known. Raises StoreError, MissingExtra."""
    urls = [absolute(path.strip()) for path in paths if is_url(path.strip())]
    # The files of a data directory are beside its partitions.
    roots = [url.rpartition("/")[0] if inspect.partition_of(url.rpartition("/")[2]) else url for url in urls]
    found = tuple(dict.fromkeys(_place(root, conf or {}) for root in roots))
    use(found)
    return found


def _place(root: str, conf: Mapping[str, str]) -> LogPlace:
    if not root.startswith(TIERED):
        return Place.of(root, conf)
    place = TieredPlace(root, tuple(sorted(conf.items())))
    for part in filter(is_url, place.parts):
        Place.of(part, conf)
    return place


def use(places: Iterable[LogPlace]) -> None:
    """Makes places known to this process: `files_of` finds the files at and below their URLs."""
    for place in places:
        _places[place.url] = place
        if isinstance(place, TieredPlace):
            use(Place(part, place.conf) for part in place.parts if is_url(part))


def files_of(path: str) -> Files:
    """Returns the files of a path, to be read. Raises StoreError for a URL at no known place."""
    if not is_url(path):
        return inspect.INSPECTION_FILES
    above = path.rstrip("/")
    while above not in _places:
        above, _, name = above.rpartition("/")
        if not name:
            raise StoreError(f"{path} is in an object store, where this cannot read or change logs")
    place = _places[above]
    if place not in _trees:
        _trees[place] = _tree(place)
    return _trees[place]


def _tree(place: LogPlace) -> Files:
    if isinstance(place, TieredPlace):
        remote, local = map(files_of, place.parts)
        return TieredTree(place, remote, local)
    with needed():
        from .files import ObjectTree
    return ObjectTree(place.files())


def absolute(path: str) -> str:
    """Returns an absolute path, or a URL without the last slash. Raises StoreError."""
    if path.startswith(TIERED):
        return f"{TIERED}{'!'.join(map(absolute, TieredPlace(path).parts))}"
    return path.rstrip("/") if is_url(path) else os.path.abspath(path)


def on_this_machine(path: str) -> str | None:
    """Returns the path that a broker of this machine may use; None for objects."""
    local = TieredPlace(path).parts[1] if path.startswith(TIERED) else path
    return None if is_url(local) else local


def followed(path: str) -> str:
    """Returns `inspect.followed` of a path; objects have no links."""
    return path.rstrip("/") if is_url(path) else inspect.followed(path)


def partitions_at(path: str) -> tuple[list[inspect.PartitionFolder], bool]:
    """Returns the partitions of a log directory, or the one of a partition's folder, and whether it is such a folder.
    Raises ReadError."""
    with as_read_error():
        path, files = followed(path), files_of(path)
        own = inspect.partition_folder(path, files)
        return ([own], True) if own is not None else (inspect.partitions(path, files), False)


def is_missing(path: str) -> bool:
    """Returns whether there is nothing at a path of this machine, not even a link. A URL is missing if it is neither an
    object nor has one below it."""
    if not is_url(path):
        return not os.path.lexists(path)
    files = files_of(path)
    try:
        return not files.exists(path) and not files.list(path)
    except OSError as error:
        return error.errno == errno.ENOENT
