"""Tasks for the tests of the jobs, imported by workers."""

from __future__ import annotations

import os


def doubled(item: int) -> int:
    return 2 * item


def refuses_seven(item: int) -> int:
    if item == 7:
        raise ValueError("it is\nseven")
    return item


def dies(item: int) -> int:
    os._exit(3)
