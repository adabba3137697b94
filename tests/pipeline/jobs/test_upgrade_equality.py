"""The fast conversion gives the bytes of storage/compaction/rewrite.py, with equal indexes, and reports the same
damage."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.pipeline.jobs.in_place.windows import upgrading
from ottla.pipeline.readers.columnar import upgrade as columnar
from ottla.protocol.records import batch
from ottla.storage.compaction.rewrite import LIMITS, Limits, Source, Target, rewrite, rewritten
from ottla.storage.compaction.swap import Rewritten
from ottla.storage.errors import StorageError
from ottla_testing.storage.old_messages import Piece, lay_down, message, piece, wrapper
from ottla_testing.storage.simulated_files import SimulatedFiles

FOLDER = "/data/orders-0"
Result = tuple[list[Rewritten], dict[str, bytes]] | str


def both(
    data: bytes,
    *,
    base: int = 0,
    end: int = 2**63 - 1,
    interval: int = 4096,
    limits: Limits = LIMITS,
    window_bytes: int = 1 << 20,
    least: int = 1,
) -> tuple[Result, Result]:
    """Converts a segment one entry after the other, and in runs."""
    files = SimulatedFiles()
    lay_down(files, [(base, [Piece(data, [])])], FOLDER)
    source = Source(f"{FOLDER}/{base:020d}.log", len(data))

    def result(**more: Any) -> Result:
        try:
            made = rewrite(
                files, [source], Target(FOLDER, base, interval, end_offset=end, limits=limits, suffix=".new"), **more
            )
        except StorageError as error:
            return str(error)
        names = [name for name in files.list(FOLDER) if name.endswith(".new")]
        found = {name: files.read_bytes(f"{FOLDER}/{name}") for name in names}
        for name in names:
            files.remove(f"{FOLDER}/{name}")
        return made, found

    slow = result()
    with mock.patch.object(columnar, "LEAST_ENTRIES", least - 1):
        return slow, result(read=upgrading(base, end, window_bytes))


def long_segment(rng: random.Random, runs: int = 12) -> bytes:
    """Returns runs of every format and codec, some longer than others."""
    offset, found = 5, b""
    for _ in range(runs):
        magic, codec = rng.choice(((0, 0), (1, 0), (1, 0), (2, 0), (0, 1), (0, 3), (1, 1), (1, 2), (1, 3), (2, 4)))
        append_time = rng.choice((None, None, 70 + offset))
        for _ in range(rng.choice((1, 3, 20))):
            times = [rng.choice((-1, 0, 5, 2**40, rng.randrange(10**12))) for _ in range(3)]
            steps = [rng.choice((1, 1, 1, 3, 200)) for _ in range(rng.choice((0, 1, 30)))]
            found += (part := piece(magic, codec, offset, steps, times, append_time=append_time)).data
            offset = part.rows[-1][0] + 1 + rng.choice((0, 0, 9))
    return found


@pytest.mark.parametrize(("seed", "least"), [(0, 1), (1, 1), (2, 9)])
def test_fast_path_mixed_segment_same_bytes(seed: int, least: int, stride: int):
    data = long_segment(random.Random(seed))
    cases = [
        (window, one)
        for window in (200, 4096, 1 << 20)
        for one in (LIMITS, Limits(index_bytes=60), Limits(segment_bytes=3000))
    ]
    for window_bytes, limits in cases[random.randrange(stride) :: stride]:
        slow, fast = both(data, base=5, interval=300, limits=limits, window_bytes=window_bytes, least=least)
        assert slow == fast and not isinstance(slow, str)
        assert (len(slow[0]) > 1) == (limits is not LIMITS)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1, 2, 3])
def test_fast_path_converts_all_entries(magic: int, codec: int):
    """No entry is left to the slow path."""
    parts = [piece(magic, codec, at, (1,) * 9, (5, 3, 4)).data for at in range(0, 500, 10)]
    with mock.patch("ottla.storage.compaction.rewrite.rewritten", wraps=rewritten) as alone:
        slow, fast = both(b"".join(parts), interval=0)
    assert alone.call_count == (50 if codec else 500)
    assert slow == fast and isinstance(fast, tuple) and fast[0][0].converted == 500


def test_fast_path_extreme_values_same_bytes():
    top = 2**63 - 1
    cases = [
        message(1, 3, None, None, -5, 8) + message(1, 4, b"", b"", -(2**63)) + message(1, 5, b"k", b"v", top, -16),
        message(0, 3, b"k", b"v" * 300_000, attributes=-8) + message(0, 2**31, b"k" * 200, None),
        wrapper(1, 1, [(3, b"k", b"v", -7), (9, None, None, -9)]) + wrapper(1, 2, [(10, b"", b"", 4)], append_time=-3),
        wrapper(0, 1, [(3, b"k", b"v", 0), (9, None, None, 0)])[:7] + b"\x63" + wrapper(0, 1, [(3, None, None, 0)])[8:],
        wrapper(1, 1, [(3, b"k", b"v", -(2**63)), (9, None, None, 2**62)]),
        wrapper(0, 1, [(3, None, None, 0), (3, None, None, 0)]),
        wrapper(0, 3, [(3, None, None, 0), (2**32, None, None, 0)]),
        message(1, 3, None, b"not a set", attributes=1),
        wrapper(1, 1, [(3, b"k", b"v", 5)], append_time=9) + message(1, 2, None, None),
        bytes(batch.build([], batch.BatchFields(last_offset_delta=3), base_offset=7)) + message(1, 10, None, None),
        bytes(batch.build([], batch.BatchFields(last_offset_delta=3), base_offset=7)) + message(1, 11, None, None),
    ]
    failures = 0
    for data in cases:
        for again in (b"", data):
            slow, fast = both(data + again, end=2**62)
            assert slow == fast
            failures += isinstance(slow, str)
    assert len(cases) < failures < 2 * len(cases)


@given(st.data())
def test_fast_path_damage_same_error(data: st.DataObject):
    rng = random.Random(data.draw(st.integers(0, 999)))
    sound = bytearray(long_segment(rng, 4))
    for _ in range(data.draw(st.integers(1, 2))):
        at = data.draw(st.integers(0, len(sound) - 1)) if data.draw(st.booleans()) else rng.randrange(len(sound))
        sound[at] ^= 1 << rng.randrange(8)
    if data.draw(st.booleans()):
        del sound[rng.randrange(len(sound)) :]
    slow, fast = both(bytes(sound), base=5, interval=500, window_bytes=rng.choice((100, 5000, 1 << 20)))
    assert slow == fast


@st.composite
def segments(draw: st.DrawFn) -> tuple[int, bytes]:
    offset = base = draw(st.sampled_from((0, 7, 2**40)))
    found = b""
    shapes: Sequence[tuple[int, int]] = draw(
        st.lists(
            st.sampled_from([(magic, codec) for magic in (0, 1) for codec in range(4)] + [(2, 0), (2, 4)]), max_size=6
        )
    )
    for magic, codec in shapes:
        for _ in range(draw(st.sampled_from((1, 2, 12)))):
            steps = draw(st.lists(st.sampled_from((1, 1, 2, 70_000)), max_size=4))
            times = draw(st.lists(st.integers(-3, 2**44), min_size=1, max_size=5))
            part = piece(magic, codec, offset, steps, times, append_time=draw(st.none() | st.integers(-1, 2**40)))
            found += part.data
            offset = part.rows[-1][0] + draw(st.sampled_from((1, 1, 1, 0, 2**31)))
    return base, found


@given(segments(), st.sampled_from((0, 50, 4096)), st.sampled_from((36, 200, 10**6)), st.sampled_from((150, 2**31 - 1)))
def test_fast_path_random_segment_same_bytes(segment: tuple[int, bytes], interval: int, index: int, size: int):
    base, data = segment
    slow, fast = both(
        data, base=base, end=base + 2**34, interval=interval, limits=Limits(size, index), window_bytes=3000
    )
    assert slow == fast
