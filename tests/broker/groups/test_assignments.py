"""Parsing of partitions in a consumer's assignment, compared with Ottla's client; random bytes never raise."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.groups.classic.subscription import partitions_of
from ottla.client.net.metadata import by_topic
from ottla.protocol.consumer_protocol import assignment_bytes

PARTITIONS = st.sets(st.tuples(st.text(max_size=5), st.integers(0, 2**31 - 1)), max_size=20)


@given(PARTITIONS)
def test_assignment_written_by_a_client_is_parsed(partitions: set[tuple[str, int]]):
    data = assignment_bytes(by_topic(sorted(partitions)).items())
    assert partitions_of(data) == sorted(partitions)
    for cut in range(1, len(data) - 4 * bool(partitions)):  # the user data at the end is ignored
        found = partitions_of(data[:cut])
        assert found is None or found == sorted(partitions)


@given(st.binary(max_size=60))
def test_assignment_of_other_bytes_is_none(data: bytes):
    found = partitions_of(data)
    assert found is None or all(isinstance(topic, str) and partition >= 0 for topic, partition in found)


def test_empty_assignment_has_no_partitions_and_a_count_beyond_the_bytes_is_none():
    assert partitions_of(b"") == []
    assert partitions_of(b"\0\1" + b"\x7f\xff\xff\xff" + bytes(50)) is None
    assert partitions_of(b"\0\1" + b"\0\0\0\1" + b"\0\1t" + b"\x7f\xff\xff\xff") is None
    assert partitions_of(b"\0\1" + b"\0\0\0\1" + b"\0\1\xff" + bytes(4)) is None
    assert partitions_of(b"\xff\xff" + bytes(4)) is None
