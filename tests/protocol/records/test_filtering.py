"""Batches that lose records, compared with decoding and building from scratch, and with Kafka's rules for
timestamps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.records import batch, filtering
from ottla.protocol.records.batch import Header, Record
from ottla.protocol.records.errors import InvalidRecords

TIMES = st.one_of(st.integers(0, 300), st.integers(-(2**40), 2**45))
BLOBS = st.one_of(st.none(), st.binary(max_size=5), st.sampled_from([b"k" * 63, b"k" * 64, b"v" * 9000]))
HEADERS = st.lists(st.tuples(st.text(max_size=3), BLOBS).map(lambda pair: Header(*pair)), max_size=2)
RECORDS = st.lists(st.tuples(TIMES, BLOBS, BLOBS, HEADERS, st.integers(1, 200)), min_size=1, max_size=8)


def numbered(rows: list[tuple[int, bytes | None, bytes | None, list[Header], int]], base: int) -> list[Record]:
    records: list[Record] = []
    offset = base - 1
    for time, key, value, headers, step in rows:
        offset += step
        records.append(Record(offset, time, key, value, tuple(headers)))
    return records


def rebuilt(header: batch.BatchHeader, kept: list[Record], horizon_ms: int | None) -> bytearray:
    """Builds the batch of these records from scratch."""
    return batch.build(
        kept,
        batch.BatchFields(
            log_append_time=header.log_append_time,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            transactional=header.is_transactional,
            control=header.is_control,
            last_offset_delta=header.last_offset_delta,
            max_timestamp=header.max_timestamp if header.log_append_time else None,
            delete_horizon_ms=horizon_ms,
        ),
        base_offset=header.base_offset,
        codec=header.codec,
        leader_epoch=header.partition_leader_epoch,
    )


def thinned(data: bytearray, *arguments: object) -> tuple[bytearray | None, int]:
    header = batch.read_header(data)
    return filtering.thinned(bytes(batch.payload(data, 0, header)), header, *arguments)  # type: ignore[arg-type]


@given(
    RECORDS,
    st.integers(0, 255),
    st.one_of(st.none(), st.integers(0, 2**41)),
    st.one_of(st.none(), st.integers(0, 2**41)),
    st.sampled_from([0, 1, 4]),
    st.booleans(),
    st.one_of(st.none(), st.integers(0, 2**41)),
)
def test_filtered_batch_equals_a_decoded_and_rebuilt_one(
    rows: list, mask: int, old_ms: int | None, new_ms: int | None, codec: int, control: bool, append_ms: int | None
) -> None:
    base = 2**40
    records = numbered(rows, base)
    data = batch.build(
        records,
        batch.BatchFields(
            producer_id=7,
            producer_epoch=2,
            base_sequence=5,
            transactional=True,
            control=control,
            delete_horizon_ms=old_ms,
            log_append_time=append_ms is not None,
            max_timestamp=append_ms,
            last_offset_delta=records[-1].offset - base + 3,
        ),
        base_offset=base,
        codec=codec,
        leader_epoch=3,
    )
    header = batch.read_header(data)
    before = list(batch.records(data))
    kept = [record for number, record in enumerate(before) if mask >> number & 1]
    seen = [(record.offset, record.key, record.value is not None) for record in before]
    offered: list[tuple[int, bytes | None, bool]] = []

    def keep(offset: int, key: bytes | None, has_value: bool) -> bool:
        offered.append((offset, key, has_value))
        return offset in {record.offset for record in kept}

    made, count = thinned(data, keep, new_ms)
    assert offered == seen and count == len(kept)
    needs = old_ms is None and new_ms is not None and (control or any(record.value is None for record in kept))
    if not kept or (len(kept) == len(before) and not needs):
        assert made is None
        return
    wanted = rebuilt(header, kept, old_ms if old_ms is not None else new_ms if needs else None)
    assert made is not None and list(batch.records(made)) == kept
    if codec != 1:  # gzip's header has a timestamp
        assert made == wanted
    assert batch.read_header(made)[2:4] == batch.read_header(wanted)[2:4]
    assert batch.read_header(made)[5:] == batch.read_header(wanted)[5:]
    assert batch.crc_matches(made, 0, batch.read_header(made))


def test_without_a_filter_only_a_delete_horizon_changes_the_batch() -> None:
    data = batch.build([Record(0, 5, b"a", None), Record(1, 6, b"b", b"v")])
    assert thinned(data, None, None) == (None, 2)
    made, count = thinned(data, None, 100)
    assert made is not None and count == 2
    assert made == batch.build(list(batch.records(data)), batch.BatchFields(delete_horizon_ms=100))
    assert thinned(made, None, 200) == (None, 2)
    valued = batch.build([Record(0, 5, b"a", b"v")])
    assert thinned(valued, None, 100) == (None, 1)


@given(st.binary(max_size=60), st.integers(-1, 12))
def test_arbitrary_bytes_are_read_or_refused(payload: bytes, count: int) -> None:
    try:
        found = list(filtering.parts(payload, count))
    except InvalidRecords:
        return
    assert len(found) == count
    assert [part[0] for part in found] == [0, *(part[1] for part in found)][: len(found)]


@given(RECORDS, st.integers(0, 2**16), st.integers(1, 255))
def test_damaged_batch_is_read_or_refused(rows: list, at: int, flip: int) -> None:
    data = batch.build(numbered(rows, 0))
    payload = bytearray(data[61:])
    payload[at % len(payload)] ^= flip
    header = batch.read_header(data)
    try:
        made, count = filtering.thinned(bytes(payload), header, lambda offset, *_: offset % 2 == 0, 77)
    except InvalidRecords:
        return
    assert count <= len(rows)
    if made is not None:
        assert batch.read_header(made).record_count == count


def test_record_without_bytes_for_its_headers_is_refused() -> None:
    sound = bytes(batch.build([Record(0, 0, b"key", b"value")])[61:])
    assert sound == bytes((28, 0, 0, 0, 6)) + b"key" + bytes((10,)) + b"value" + b"\0"
    for wrong in (
        sound[:-1],
        bytes((26,)) + sound[1:-1],
        bytes((28, 0, 0, 0, 80)) + sound[5:],
        sound[:8] + bytes((90,)) + sound[9:],
        bytes((1,)) + sound[1:],
        sound + b"\0",
    ):
        with pytest.raises(InvalidRecords):
            list(filtering.parts(wrong, 1))


@given(st.integers(2**62, 2**63 - 1))
def test_timestamps_outside_the_rebuilt_batch_are_refused(late: int) -> None:
    data = batch.build([Record(0, late, b"a", None)])
    with pytest.raises(InvalidRecords, match="does not fit"):
        thinned(data, None, -(2**62))
