"""Whether disks have room for what is written beside the old segments, looked at before anything is."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ...backend import ReadError

LARGEST_BUNDLE_BYTES = 64 << 20
"""What a task may have written before its results are known: see `spark_tasks.py`."""

Free = Callable[[str], int]
"""How many bytes are free where a path lies."""


class Room(NamedTuple):
    """What is needed in a directory, and what is free."""

    root: str
    needed_bytes: int
    free_bytes: int


def free_bytes(path: str) -> int:
    return shutil.disk_usage(path).free


def under_way(sizes: Sequence[int], parallel: int) -> int:
    """What is on its way at the same time when pieces of these sizes are written by so many tasks."""
    return min(parallel * max(*sizes, LARGEST_BUNDLE_BYTES), sum(sizes)) if sizes else 0


def check_room(needs: Iterable[tuple[str, int]], job: str, free: Free = free_bytes) -> list[Room]:
    """The room in directories of which each needs so many bytes, together those of them that share a disk. Raises
    ReadError where it does not suffice, or is not known."""
    found: list[Room] = []
    together: dict[int, int] = {}
    for root, need in needs:
        try:
            left, device = free(root), _device(root)
        except OSError as error:
            raise ReadError(f"how much room {root} has cannot be told: {error.strerror or error}") from error
        together[device] = together.get(device, 0) + need
        if together[device] > left:
            raise ReadError(
                f"the disk of {root} has {left} bytes free, and the {job} may need {together[device]}: make room, or "
                "do some topics at a time (--topic)"
            )
        found.append(Room(root, need, left))
    return found


def _device(path: str) -> int:
    try:
        return os.stat(path).st_dev
    except FileNotFoundError:  # of a disk that is simulated
        return -1
