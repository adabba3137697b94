"""Bundles and progress of jobs without Spark."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st

from ottla.pipeline.jobs.spark_tasks import (
    ITEM_BYTES,
    LEAST_BYTES,
    MOST_BYTES,
    Meter,
    Progress,
    bundles,
)

sizes = st.lists(st.integers(0, 300 << 20), max_size=60)


@given(sizes, st.integers(1, 64))
def test_bundles_cover_items_within_size(found: list[int], cores: int) -> None:
    parts = bundles(found, cores)
    assert sorted(index for part in parts for index in part) == list(range(len(found)))
    assert all(parts)
    for part in parts:
        assert len(part) == 1 or sum(found[index] + ITEM_BYTES for index in part) <= MOST_BYTES
    # Two neighbours would exceed one bundle.
    costs = [sum(found[index] + ITEM_BYTES for index in part) for part in parts]
    assert all(costs[at] + found[parts[at + 1][0]] + ITEM_BYTES > LEAST_BYTES for at in range(len(parts) - 1))


def test_bundles_of_many_small_items_are_few() -> None:
    assert len(bundles([1000] * 10_000, 2)) <= 17
    assert len(bundles([0] * 50, 2)) == 1
    assert bundles([1, 1 << 30, 2, 1 << 29], 2) == [[1], [3], [2, 0]]
    assert bundles([], 2) == []


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


HALF = Progress(3, 6, 50 << 20, 100 << 20, 0.5)
ALL = Progress(6, 6, 100 << 20, 100 << 20, 100.0, ended=True)


def test_meter_on_terminal_rewrites_line() -> None:
    out = Terminal()
    meter = Meter("census", out)
    meter(HALF)
    meter(ALL)
    first, second = out.getvalue().split("\r\x1b[K")[1:]
    assert first == "census: 3 of 6, 50 MiB of 100 MiB, 100 MiB/s, 0 ms left"
    assert second == "census: 6 of 6, 100 MiB of 100 MiB, 1 MiB/s in 1m 40s\n"


def test_meter_without_terminal_prints_line_every_few_seconds() -> None:
    out = io.StringIO()
    meter = Meter("audit", out)
    for seconds in (0.5, 4.9, 5.0, 9.9, 10.1):
        meter(HALF._replace(seconds=seconds))
    meter(ALL._replace(seconds=10.2))
    assert [line.split(", ")[2] for line in out.getvalue().splitlines()] == [
        "10 MiB/s",
        "4.95 MiB/s",
        "9.8 MiB/s in 10.2 s",
    ]
    out.close()
    meter(ALL)


def test_progress_text_without_bytes() -> None:
    assert str(Progress(0, 6, 0, 1000, 0.0)) == "0 of 6, 0 B of 1000 B"
