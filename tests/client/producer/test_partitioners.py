"""Partitioners compared with Java's producers and librdkafka, Kafka's own test vectors, and an independent murmur2."""

from __future__ import annotations

import itertools
import json
import random
import warnings
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.net.errors import ConfigError
from ottla.client.producer.partitioners import (
    BY_NAME,
    consistent_random,
    java_default,
    java_partition,
    partitioner,
    round_robin,
)
from ottla.protocol.murmur2 import murmur2

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.partitioner.default import murmur2 as independent_murmur2

# The vectors of Apache Kafka's own test of its hash (UtilsTest), signed like in Java.
JAVA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


COUNTS_AND_NAMES, *CHOSEN = json.loads((Path(__file__).parent / "partitions.json").read_text())


@pytest.mark.parametrize("by", COUNTS_AND_NAMES["by"])
def test_keys_go_to_the_partitions_of_java_and_librdkafka(by: str) -> None:
    """`make_partitions.py` has recorded these; null is a random choice."""
    chosen = partitioner("java_default" if by.startswith("java ") else by)(random.Random(1))
    column = 1 + COUNTS_AND_NAMES["by"].index(by)
    compared = 0
    for row in CHOSEN:
        key = bytes.fromhex(row[0])
        for count, expected in zip(COUNTS_AND_NAMES["counts"], row[column], strict=True):
            if expected is not None:
                assert chosen.choose("t", key, count, [0]) == expected, (key, count)
                compared += 1
            else:
                assert (by, key) == ("consistent_random", b"")
    assert compared >= 500


@pytest.mark.parametrize("key", JAVA)
def test_murmur2_equals_javas_vectors(key: bytes) -> None:
    assert murmur2(key) == JAVA[key] & 0xFFFFFFFF


@given(st.binary(max_size=64))
def test_murmur2_equals_an_independent_implementation(key: bytes) -> None:
    assert murmur2(key) & 0x7FFFFFFF == independent_murmur2(key) & 0x7FFFFFFF


@given(key=st.binary(max_size=40), count=st.integers(1, 1000))
def test_key_always_has_the_same_partition(key: bytes, count: int) -> None:
    chosen = java_default(random.Random(1))
    expected = (independent_murmur2(key) & 0x7FFFFFFF) % count
    assert chosen.choose("t", key, count, [0]) == java_partition(key, count) == expected
    chosen.batch_closed("t", expected)
    assert chosen.choose("t", key, count, []) == expected
    if key:
        rdkafka = consistent_random(random.Random(1))
        assert rdkafka.choose("t", key, count, [0]) == zlib.crc32(key) % count


def test_crc32_of_known_values() -> None:
    chosen = consistent_random(random.Random(1))
    assert chosen.choose("t", b"123456789", 1 << 31, [0]) == 0xCBF43926 % (1 << 31)


@pytest.mark.parametrize(("make", "key"), [(java_default, None), (consistent_random, None), (consistent_random, b"")])
def test_sticky_partitioner_changes_after_each_batch(make, key) -> None:
    chosen = make(random.Random(7))
    seen = []
    for _ in range(60):
        partitions = {chosen.choose("t", key, 10, [2, 5, 9]) for _ in range(20)}
        (partition,) = partitions
        chosen.batch_closed("t", (partition + 1) % 10)  # another topic's batch changes nothing
        assert chosen.choose("t", key, 10, [2, 5, 9]) == partition
        chosen.batch_closed("t", partition)
        seen.append(partition)
    assert set(seen) == {2, 5, 9}
    assert all(a != b for a, b in itertools.pairwise(seen))
    assert chosen.choose("one", key, 1, [0]) == 0
    chosen.batch_closed("one", 0)
    assert chosen.choose("one", key, 1, [0]) == 0
    assert chosen.choose("none available", key, 3, []) in range(3)


def test_empty_key_is_a_key_for_java() -> None:
    chosen = java_default(random.Random(1))
    assert chosen.choose("t", b"", 1000, [1]) == (murmur2(b"") & 0x7FFFFFFF) % 1000


def test_round_robin_ignores_the_key() -> None:
    chosen = round_robin(random.Random(1))
    assert [chosen.choose("t", b"k", 4, [0, 2, 3]) for _ in range(5)] == [0, 2, 3, 0, 2]
    assert [chosen.choose("u", None, 2, []) for _ in range(3)] == [0, 1, 0]


def test_partitioner_is_chosen_by_name() -> None:
    assert partitioner("consistent_random") is consistent_random
    assert partitioner(round_robin) is round_robin
    assert all(partitioner(name)(random.Random(1)).choose("t", b"k", 3, [0]) in range(3) for name in BY_NAME)
    with pytest.raises(ConfigError, match="unknown partitioner 'x'"):
        partitioner("x")
