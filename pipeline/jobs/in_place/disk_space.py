"""Checks before any write that disks have room for the new segments beside the old ones."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ...backend import ReadError, as_read_error

LARGEST_BUNDLE_BYTES = 64 << 20
"""The most that a task may have written before its results are known: see `spark_tasks.py`."""

Free = Callable[[str], int]
"""Returns the free bytes on the disk of a path."""


class Room(NamedTuple):
    """The needed and the free bytes of a directory."""

    root: str
    needed_bytes: int
    free_bytes: int


def free_bytes(path: str) -> int:
    return shutil.disk_usage(path).free


def under_way(sizes: Sequence[int], parallel: int) -> int:
    """Returns the most bytes that `parallel` tasks have in progress at once when they write pieces of these sizes."""
    return min(parallel * max(*sizes, LARGEST_BUNDLE_BYTES), sum(sizes)) if sizes else 0


def check_room(needs: Iterable[tuple[str, int]], job: str, free: Free = free_bytes) -> list[Room]:
    """Checks the needed bytes of each directory, added up for those on one disk. Raises ReadError if the space is too
    small or unknown."""
    found: list[Room] = []
    together: dict[int, int] = {}
    for root, need in needs:
        with as_read_error(f"cannot determine the free space of {root}"):
            left, device = free(root), _device(root)
        together[device] = together.get(device, 0) + need
        if together[device] > left:
            raise ReadError(
                f"the disk of {root} has {left} bytes free, and the {job} may need {together[device]}: free some "
                "space, or do some topics at a time (--topic)"
            )
        found.append(Room(root, need, left))
    return found


def _device(path: str) -> int:
    try:
        return os.stat(path).st_dev
    except FileNotFoundError:  # a simulated disk
        return -1
