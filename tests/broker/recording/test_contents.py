"""Frames without contents: no bytes of a key, a value or a header's value are left, and everything else is
unchanged."""

from __future__ import annotations

import random
from typing import Any

import pytest

from ottla.broker.recording.redaction import without_contents, zeroed
from ottla.protocol.compiler import build, parse
from ottla.protocol.headers import request_header, response_header
from ottla.protocol.messages.records.fetch import FetchResponse
from ottla.protocol.messages.records.produce import ProduceRequest
from ottla.protocol.records import batch, formats, legacy
from ottla.protocol.records.batch import Header, Record
from ottla_testing.broker.harness import produce

SECRET = b"s3cret"
RECORDS = [
    Record(5, 1000, SECRET, SECRET * 9, (Header("name", SECRET), Header("null", None))),
    Record(6, 990, None, SECRET, ()),
    Record(7, 2000, b"", None, ()),
]
PLAIN = [record._replace(headers=()) for record in RECORDS]


def made(magic: int, codec: int) -> bytes:
    if magic < 2:
        return bytes(legacy.build(PLAIN, magic=magic, codec=codec))
    return bytes(
        batch.build(
            RECORDS,
            batch.BatchFields(producer_id=9, producer_epoch=1, base_sequence=3, transactional=True),
            base_offset=5,
            codec=codec,
        )
    )


def blank(record: Record) -> Record:
    key, value = (None if part is None else bytes(len(part)) for part in (record.key, record.value))
    headers = tuple(Header(h.key, None if h.value is None else bytes(len(h.value))) for h in record.headers)
    return record._replace(key=key, value=value, headers=headers)


def read(data: Any) -> list[Record]:
    found = []
    for position, header in formats.headers(data):
        assert formats.crc_matches(data, position, header)
        found += [record._replace(headers=tuple(record.headers)) for record in formats.records(data, position)]
    return found


@pytest.mark.parametrize(
    ("magic", "codec"), [(magic, codec) for magic in range(3) for codec in range(5) if magic == 2 or codec < 4]
)
def test_contents_of_every_format_and_codec_are_zeroed(magic: int, codec: int) -> None:
    data = made(magic, codec) * 2
    shown = zeroed(data)
    assert read(shown) == [blank(record) for record in read(data)] and len(read(shown)) == 6
    changing = {"batch_length", "crc"}
    for (_, one), (_, other) in zip(formats.headers(data), formats.headers(shown), strict=True):
        assert {k: v for k, v in one._asdict().items() if k not in changing} == {
            k: v for k, v in other._asdict().items() if k not in changing
        }
    if codec == 0:
        assert len(shown) == len(data)
    assert SECRET not in shown


def test_control_records_stay() -> None:
    data = batch.build(
        [Record(0, 1, b"\0\0\0\1", b"\0\0\0\0\0\7")], batch.BatchFields(control=True, transactional=True, producer_id=1)
    )
    assert zeroed(data) == data


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_zeroed_batch_keeps_a_wrong_crc_and_no_contents(magic: int) -> None:
    data = bytearray(made(magic, 0))
    at = 17 if magic == 2 else 12
    data[at : at + 4] = b"\x11\x22\x33\x44"
    shown = zeroed(data)
    assert shown[at : at + 4] == b"\x11\x22\x33\x44" and SECRET not in shown


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", [0, 1, 2])
def test_damaged_records_leave_no_contents(magic: int, codec: int) -> None:
    """Cut anywhere, or with a changed bit: no value is left, and nothing is raised."""
    seeded = random.Random(11)
    data = made(magic, codec)
    for cut in range(len(data)):
        shown = zeroed(data[:cut])
        assert SECRET not in shown and len(shown) == cut
    for _ in range(300):
        changed = bytearray(data)
        changed[seeded.randrange(len(data))] ^= 1 << seeded.randrange(8)
        assert SECRET not in zeroed(changed)


@pytest.mark.parametrize("version", [2, 3, 8, 9, 12, 13])
def test_produce_request_is_zeroed_and_decodes(version: int) -> None:
    data = made(1 if version < 3 else 2, 1)
    request = produce(data, transactional_id=None) if version >= 3 else produce(data)
    head = request_header(0, version, 1, b"me", version >= 9)
    shown = without_contents(head + build(request, version), 0, version, True)
    found = parse(ProduceRequest, version, shown, len(head))
    (partition,) = found.topic_data[0].partition_data
    assert read(partition.records) == [blank(record) for record in read(data)]
    partition.records = data
    assert build(found, version) == build(request, version)


def test_fetch_response_is_zeroed_and_decodes() -> None:
    partition = FetchResponse.FetchableTopicResponse.PartitionData(
        partition_index=0, error_code=0, high_watermark=1, records=made(2, 4) + made(2, 0)[:90]
    )
    topic = FetchResponse.FetchableTopicResponse(topic="t", partitions=[partition])
    head = response_header(1, 1, True)
    shown = without_contents(head + build(FetchResponse(responses=[topic]), 12), 1, 12, False)
    found = parse(FetchResponse, 12, shown, len(head)).responses[0].partitions[0].records
    assert read(found) == [blank(record) for record in RECORDS] and SECRET not in bytes(found or b"")


def test_frames_without_records_are_unchanged_and_undecodable_ones_cut() -> None:
    assert without_contents(SECRET, 3, 0, True) == SECRET  # a Metadata request has no contents
    assert without_contents(SECRET * 9, 0, 9, False) == SECRET * 9  # nor has a Produce response
    for version in (9, 99, -1):
        assert without_contents(b"\0\0\0\x09\0\0\0\1" + SECRET, 0, version, True) == b"\0\0\0\x09\0\0\0\1" + bytes(6)
