"""Which offset is the last of each key: what compaction remembers of the dirty part of a log.

Owns a table of packed slots of 24 bytes, as Apache Kafka's SkimpyOffsetMap has them: the MD5 of the key (16 bytes) and
an offset (8). The key itself is not kept: two keys of one MD5 would be taken for one. A plain dict of a million keys
would take five times the memory, and more for long keys.

The buffer is reserved as a whole, which costs nothing until it is touched, and cut into shards by bits of the hash.
Every shard uses only the beginning of its part, and more of it when nine of ten slots are taken, so that few keys touch
little memory however large the buffer may become. A shard is moved within itself, with a copy of that shard alone.
"""

from __future__ import annotations

import hashlib
import mmap
import struct
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

try:  # Twice as fast as OpenSSL's for a short key; not every build of Python has it.
    from _md5 import md5  # pyright: ignore[reportMissingImports, reportUnknownVariableType]
except ImportError:
    md5: Callable[[bytes], Any] = partial(hashlib.md5, usedforsecurity=False)

SLOT_BYTES = 24
LOAD_FACTOR = 0.9
_SHARDS = 64
# The fewest slots of a shard: with this many one in ten left free is more than what one shard gets above the others.
_SHARD_SLOTS = 4096
_FIRST_SLOTS = 509  # of each shard
_GROWTH = 1.5
_words: Callable[[bytes], tuple[int, int]] = struct.Struct("=QQ").unpack


def digests(keys: Iterable[bytes]) -> bytes:
    """What stands for these keys: 16 bytes of each."""
    return b"".join([md5(key).digest() for key in keys])


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % divisor for divisor in range(2, int(number**0.5) + 1))


class OffsetMap:
    """The last offset of each key, in at most `buffer_bytes`. Offsets are not negative. See the module.

    ValueError if the buffer has no room for a single key.
    """

    def __init__(self, buffer_bytes: int) -> None:
        slots = buffer_bytes // SLOT_BYTES
        self.max_keys = int(slots * LOAD_FACTOR)
        """So many keys fit; if the hashes spread badly, a few less."""
        if self.max_keys < 1:
            raise ValueError(f"{buffer_bytes} bytes have no room for a key")
        self._shards = min(_SHARDS, max(1, slots // _SHARD_SLOTS))
        self._room = slots // self._shards  # slots of a shard
        # Not a bytearray: that one writes its zeros, and all of it would be touched.
        self._words: memoryview[int] = memoryview(mmap.mmap(-1, self._shards * self._room * SLOT_BYTES)).cast("Q")
        self._counts = [0] * self._shards
        self._keys = 0
        self._resize(min(_FIRST_SLOTS, self._room))

    def __len__(self) -> int:
        return self._keys

    def put(self, key: bytes, offset: int) -> bool:
        """Notes the offset of a key in place of an earlier one; False if it is a new key and there is no room."""
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
        """The last offset of a key, -1 if it has none."""
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
        """Takes a free slot for a new key, in a larger table if this one is full."""
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
        """The slot for a key that is not in the table."""
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
        """Uses so many slots of each shard, or a few less: with a prime number of them any step from slot to slot meets
        all, so that keys of one slot part at once. Where no prime is near the step is one."""
        slots = next((number for number in range(most, int(most * 0.97), -1) if _is_prime(number)), most)
        is_last = most == self._room
        self._slots, self._spread = slots, slots - 1 if _is_prime(slots) and slots > 1 else 1
        self._largest = slots if is_last else -1
        self._shard_limit = slots - 1  # one stays free, where a search ends
        self._limit = self.max_keys if is_last else int(self._shards * slots * LOAD_FACTOR)
