"""The bytes of producer snapshots: written, read, refused when damaged."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.storage import errors
from ottla.storage.format import schemas
from ottla.storage.producers import snapshot
from ottla.storage.producers.producer_state import CachedBatch, Producer
from ottla_testing.storage.batches import FOLDER
from ottla_testing.storage.simulated_files import SimulatedFiles

# Producer 9 wrote sequences 3 to 5 at offsets 103 to 105 in a transaction that began at 101; of 4096 a marker is known.
PRODUCERS = {
    4096: Producer(7, (), 119, 2000, 3),
    9: Producer(2, (CachedBatch(0, 2, 100, 102, 900), CachedBatch(3, 5, 103, 105, 1005)), 105, 1005, -1, 101),
}
GOLDEN = bytes.fromhex(
    "0001 f89633ee 00000002"
    "0000000000000009 0002 00000005 0000000000000069 00000002 00000000000003ed ffffffff 0000000000000065"
    "0000000000001000 0007 ffffffff ffffffffffffffff 00000000 00000000000007d0 00000003 ffffffffffffffff"
)
# A snapshot has only the newest batch of a producer, and bounds the offset of a marker only by its own.
KEPT = {
    9: Producer(2, (CachedBatch(3, 5, 103, 105, 1005),), 105, 1005, -1, 101),
    4096: Producer(7, (), 119, 2000, 3),
}


def test_golden_bytes_of_a_snapshot() -> None:
    assert snapshot.dump(PRODUCERS).hex(" ") == GOLDEN.hex(" ")
    assert snapshot.parse(GOLDEN, 120) == KEPT
    assert snapshot.dump({}).hex() == "000148674bc700000000"  # as Kafka writes it for every segment
    assert snapshot.parse(snapshot.dump({})) == {}
    assert snapshot.file_name(120) == "00000000000000000120.snapshot"


def test_schema_reads_the_same_values() -> None:
    found: Any = schemas.PRODUCER_SNAPSHOT.parse(GOLDEN)
    assert [entry.producer_id for entry in found.entries] == [9, 4096]
    assert [entry.current_transaction_first_offset for entry in found.entries] == [101, -1]


def test_flipped_bit_or_truncation_is_refused() -> None:
    for position in range(len(GOLDEN)):
        assert snapshot.parse(GOLDEN[:position]) is None
        for bit in range(8):
            data = bytearray(GOLDEN)
            data[position] ^= 1 << bit
            assert snapshot.parse(bytes(data)) is None
    assert snapshot.parse(GOLDEN + b"\0") is None and snapshot.parse(GOLDEN + bytes(46)) is None


def test_snapshot_with_impossible_values_is_refused() -> None:
    assert snapshot.parse(GOLDEN, 106) is not None
    assert snapshot.parse(GOLDEN, 105) is None  # a batch above the snapshot's own offset
    for bad in (
        {9: PRODUCERS[9]._replace(epoch=-1)},
        {-1: PRODUCERS[9]},
        {9: Producer(0, (CachedBatch(0, 5, -3, 2, 0),), 2, 0)},  # more records than offsets
        {9: Producer(0, (CachedBatch(-5, -5, 3, 3, 0),), 3, 0)},
    ):
        assert snapshot.parse(snapshot.dump(bad), 1000) is None


def test_snapshot_with_a_wrapped_sequence() -> None:
    """Also in the form of Kafka before 2.1.1: last sequence less first, a negative number."""
    wrapped = CachedBatch(2**31 - 2, 1, 50, 53, 7)
    data = bytearray(snapshot.dump({9: Producer(0, (wrapped,), 53, 7)}))
    assert snapshot.parse(bytes(data)) == {9: Producer(0, (wrapped,), 53, 7)}
    struct.pack_into(">i", data, 10 + 22, 1 - (2**31 - 2))
    from crc32c import crc32c

    struct.pack_into(">I", data, 2, crc32c(bytes(data[6:])))
    assert snapshot.parse(bytes(data)) == {9: Producer(0, (wrapped,), 53, 7)}


producers = st.dictionaries(
    st.integers(0, 2**63 - 1),
    st.builds(
        lambda epoch, first, delta, base, time, coordinator, begun: Producer(
            epoch,
            (CachedBatch(first, (first + delta) % 2**31, base, base + delta, time),) if base >= 0 else (),
            base + delta if base >= 0 else 2**62 - 1,
            time,
            coordinator,
            begun,
        ),
        st.integers(0, 2**15 - 1),
        st.integers(0, 2**31 - 1),
        st.integers(0, 2**31 - 1),
        st.integers(-1, 2**61),
        st.integers(-(2**63), 2**63 - 1),
        st.integers(-1, 2**31 - 1),
        st.integers(-1, 2**63 - 1),
    ),
    max_size=5,
)


@given(producers)
def test_written_snapshot_is_read_back(known: dict[int, Producer]) -> None:
    assert snapshot.parse(snapshot.dump(known), 2**62) == known


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    assert snapshot.parse(data) is None


@pytest.mark.parametrize("offset", [0, 120])
def test_missing_or_unreadable_snapshot_file(offset: int) -> None:
    files = SimulatedFiles()
    files.make_directory(FOLDER)
    assert snapshot.read(files, FOLDER, offset) is None
    file = files.open(f"{FOLDER}/{offset:020d}.snapshot", create=True)
    file.write(0, GOLDEN)
    assert snapshot.read(files, FOLDER, offset) == (KEPT if offset else None)

    def unreadable(path: str) -> bytes:
        raise OSError(5, "no such luck", path)

    files.read_bytes = unreadable  # type: ignore[method-assign]
    with pytest.raises(errors.StorageError, match="no such luck"):
        snapshot.read(files, FOLDER, offset)
