"""The offset map of the cleaner: equal to a dict, within its memory."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.storage.compaction import offset_map
from ottla.storage.compaction.offset_map import LOAD_FACTOR, SLOT_BYTES, OffsetMap


@given(
    st.integers(2 * SLOT_BYTES, 3000),
    st.lists(st.tuples(st.binary(max_size=2), st.integers(0, 2**63 - 2)), max_size=300),
)
def test_map_equals_a_dict_until_full(buffer_bytes: int, puts: list[tuple[bytes, int]]) -> None:
    found, wanted = OffsetMap(buffer_bytes), dict[bytes, int]()
    assert found.max_keys == int(buffer_bytes // SLOT_BYTES * LOAD_FACTOR)
    for key, offset in puts:
        fits = key in wanted or len(wanted) < found.max_keys
        assert found.put(key, offset) is fits
        if fits:
            wanted[key] = offset
        assert len(found) == len(wanted)
    for key in {key for key, _ in puts} | {b"none", b""}:
        assert found.get(key) == wanted.get(key, -1)


SIZES = [3, 10, 100, 4095, 8191, 8192, 9001, 13_000, pytest.param(64 * 4096, marks=pytest.mark.slow)]


@pytest.mark.parametrize("slots", SIZES)
def test_map_grows_to_the_configured_load(slots: int) -> None:
    found = OffsetMap(slots * SLOT_BYTES + SLOT_BYTES - 1)
    keys = [b"%d" % number for number in range(int(slots * LOAD_FACTOR) + 1)]
    assert found.max_keys == len(keys) - 1
    assert [found.put(key, number) for number, key in enumerate(keys)] == [True] * found.max_keys + [False]
    # Known keys may still change, and refused keys are unknown.
    assert found.put(keys[0], 7 * slots) and len(found) == found.max_keys
    assert [found.get(key) for key in keys] == [7 * slots, *range(1, found.max_keys), -1]


def test_map_with_repeated_random_keys(scaled: Callable[[int], int]) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    pick = random.Random(seed)
    found, wanted = OffsetMap(1 << 20), dict[bytes, int]()
    for offset in range(scaled(60_000)):
        key = pick.randbytes(pick.randrange(1, 4))
        if found.put(key, offset):
            wanted[key] = offset
        else:
            assert key not in wanted and len(wanted) == found.max_keys
    assert len(found) == len(wanted)
    for key, offset in wanted.items():
        assert found.get(key) == offset


def test_buffer_without_space_is_refused() -> None:
    for buffer_bytes in (-1, 0, SLOT_BYTES, 2 * SLOT_BYTES - 1):
        with pytest.raises(ValueError, match="no room"):
            OffsetMap(buffer_bytes)


def test_keys_with_colliding_hashes_are_distinct(monkeypatch: pytest.MonkeyPatch) -> None:
    """All keys begin at one slot of one shard; with different steps, or with the same."""

    class Poor:
        def __init__(self, key: bytes) -> None:
            self._key = key

        def digest(self) -> bytes:
            second = int.from_bytes(self._key, "little") * 64 if len(self._key) == 2 else 0
            return (self._key if second == 0 else b"").ljust(8, b"\0") + second.to_bytes(8, "little")

    monkeypatch.setattr(offset_map, "md5", Poor)
    found = OffsetMap(1 << 20)
    for number in range(300):
        assert found.put(number.to_bytes(2, "little"), number)
        assert found.put(number.to_bytes(3, "little"), number + 1000)
    for number in range(1, 300):
        assert found.get(number.to_bytes(2, "little")) == number
        assert found.get(number.to_bytes(3, "little")) == number + 1000
    assert found.get((301).to_bytes(2, "little")) == -1


def test_full_shard_ends_the_map_early_without_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    class Poor:
        def __init__(self, key: bytes) -> None:
            self._key = key

        def digest(self) -> bytes:
            return self._key.ljust(8, b"\0") + bytes(8)  # all in the first shard

    monkeypatch.setattr(offset_map, "md5", Poor)
    found = OffsetMap(3 * 4096 * SLOT_BYTES)
    number = 0
    while found.put(number.to_bytes(3, "little"), number):
        number += 1
    assert 4000 < number < 4096
    assert [found.get(n.to_bytes(3, "little")) for n in range(number + 1)] == [*range(number), -1]


def test_large_buffer_allocates_memory_as_keys_are_added() -> None:
    def resident_bytes() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    if not Path("/proc/self/statm").exists():  # no way to measure it
        return
    before = resident_bytes()
    found = OffsetMap(1 << 30)
    for number in range(20_000):
        found.put(b"%d" % number, number)
    assert resident_bytes() - before < 16 << 20
    assert len(found) == 20_000
