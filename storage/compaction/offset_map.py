"""The last offset of each key in the dirty part of a log.

A table of packed slots of 24 bytes, like Apache Kafka's SkimpyOffsetMap: the MD5 of the key (16 bytes) and an offset
(8). The key itself is not stored: two keys with the same MD5 would count as one. A dict of a million keys would take
five times the memory, and more for long keys.

The buffer is reserved as a whole, which takes no memory until it is touched, and divided into shards by bits of the
hash. Every shard uses only the beginning of its part, and more of it when nine of ten slots are taken, so that few keys
touch little memory however large the buffer is. A shard grows within its part, with a temporary copy of that shard
alone.
"""

from __future__ import annotations

import hashlib
import mmap
import struct
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

try:  # Twice as fast as OpenSSL's for a short key; some builds of Python lack it.
    from _md5 import md5  # pyright: ignore[reportMissingImports, reportUnknownVariableType]
except ImportError:
    md5: Callable[[bytes], Any] = partial(hashlib.md5, usedforsecurity=False)

SLOT_BYTES = 24
LOAD_FACTOR = 0.9
_SHARDS = 64
# The fewest slots of a shard: large enough that one free slot in ten absorbs the uneven distribution of keys over
# shards.
_SHARD_SLOTS = 4096
_FIRST_SLOTS = 509  # of each shard
_GROWTH = 1.5
_words: Callable[[bytes], tuple[int, int]] = struct.Struct("=QQ").unpack


def digests(keys: Iterable[bytes]) -> bytes:
    """Returns the digests of these keys, 16 bytes each, joined."""
    return b"".join([md5(key).digest() for key in keys])


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % divisor for divisor in range(2, int(number**0.5) + 1))


class OffsetMap:
    """The last offset of each key, in at most `buffer_bytes`. Offsets are not negative.

    Raises ValueError if the buffer has no room for a single key.
    """

    def __init__(self, buffer_bytes: int) -> None:
        slots = buffer_bytes // SLOT_BYTES
        self.max_keys = int(slots * LOAD_FACTOR)
        """The number of keys that fit; slightly fewer if the hashes are distributed badly."""
        if self.max_keys < 1:
            raise ValueError(f"{buffer_bytes} bytes have no room for a key")
        self._shards = min(_SHARDS, max(1, slots // _SHARD_SLOTS))
        self._room = slots // self._shards  # slots of a shard
        # Not a bytearray, which writes zeros and so touches the whole buffer.
        self._words: memoryview[int] = memoryview(mmap.mmap(-1, self._shards * self._room * SLOT_BYTES)).cast("Q")
        self._counts = [0] * self._shards
        self._keys = 0
        self._resize(min(_FIRST_SLOTS, self._room))

    def __len__(self) -> int:
        return self._keys

    def put(self, key: bytes, offset: int) -> bool:
        """Sets the offset of a key, replacing an earlier one; returns False if the key is new and there is no room."""
        first, second = _words(md5(key).digest())
        shard = second % self._shards
        slots, words = self._slots, self._words
        start = shard * self._room * 3
        at = start + first % slots * 3
        if words[at + 2]:
            step = size = end = 0
            while words[at] != first or words[at + 1] != second:
                if not step:
                    step = (second // self._shards % self._spread + 1) * 3
                    size = slots * 3
                    end = start + size
                at += step
                if at >= end:
                    at -= size
                if not words[at + 2]:
                    return self._add(shard, at, first, second, offset)
            words[at + 2] = offset + 1
            return True
        return self._add(shard, at, first, second, offset)

    def get(self, key: bytes) -> int:
        """Returns the last offset of a key, -1 if it has none."""
        first, second = _words(md5(key).digest())
        shard = second % self._shards
        slots, words = self._slots, self._words
        start = shard * self._room * 3
        at = start + first % slots * 3
        offset: int = words[at + 2]
        if not offset or (words[at] == first and words[at + 1] == second):
            return offset - 1
        step = (second // self._shards % self._spread + 1) * 3
        size = slots * 3
        end = start + size
        while True:
            at += step
            if at >= end:
                at -= size
            offset = words[at + 2]
            if not offset or (words[at] == first and words[at + 1] == second):
                return offset - 1

    def _add(self, shard: int, at: int, first: int, second: int, offset: int) -> bool:
        """Takes a free slot for a new key, after growing the table if it is full."""
        if self._counts[shard] >= self._shard_limit or self._keys >= self._limit:
            if self._keys >= self.max_keys or self._slots == self._largest:
                return False
            self._grow()
            return self._add(shard, self._free(shard, first, second), first, second, offset)
        words = self._words
        words[at], words[at + 1], words[at + 2] = first, second, offset + 1
        self._counts[shard] += 1
        self._keys += 1
        return True

    def _free(self, shard: int, first: int, second: int) -> int:
        """Returns the slot for a key that is not in the table."""
        words, start, size = self._words, shard * self._room * 3, self._slots * 3
        at = first % self._slots * 3
        step = (second // self._shards % self._spread + 1) * 3
        while words[start + at + 2]:
            at = (at + step) % size
        return start + at

    def _grow(self) -> None:
        old_size = self._slots * 3
        self._resize(min(int(self._slots * _GROWTH) + 1, self._room))
        slots, spread, shards, words = self._slots, self._spread, self._shards, self._words
        size = slots * 3
        for shard in range(shards):
            start = shard * self._room * 3
            used = words[start : start + old_size]
            taken = used.tolist()
            used[:] = memoryview(bytes(used.nbytes)).cast("Q")
            end = start + size
            for first, second, offset in zip(taken[::3], taken[1::3], taken[2::3], strict=True):
                if offset:
                    at = start + first % slots * 3
                    if words[at + 2]:
                        step = (second // shards % spread + 1) * 3
                        while words[at + 2]:
                            at += step
                            if at >= end:
                                at -= size
                    words[at] = first
                    words[at + 1] = second
                    words[at + 2] = offset

    def _resize(self, most: int) -> None:
        """Uses `most` slots of each shard, or a few less to have a prime number: then any step size visits all slots,
        so that keys with the same first slot diverge at once. Without a prime nearby the step is one."""
        slots = next((number for number in range(most, int(most * 0.97), -1) if _is_prime(number)), most)
        is_last = most == self._room
        self._slots, self._spread = slots, slots - 1 if _is_prime(slots) and slots > 1 else 1
        self._largest = slots if is_last else -1
        self._shard_limit = slots - 1  # one slot stays free, where a search ends
        self._limit = self.max_keys if is_last else int(self._shards * slots * LOAD_FACTOR)
