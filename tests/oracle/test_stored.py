"""Ottla's readers on the files and requests of real Kafka clients and brokers."""

from __future__ import annotations

from ottla.protocol.records import batch, formats, legacy
from ottla.protocol.records.batch import Record
from ottla.protocol.records.compression import Codec
from ottla_testing.each import each
from ottla_testing.oracle import golden

TOPICS = golden.topics()
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TAKEN = [write for write in golden.writes() if write.base_offset >= 0]


def plain(record: Record) -> Record:
    """Returns a record with headers in one form."""
    return record._replace(headers=tuple((name, value) for name, value in record.headers))


def kind_of(header: batch.BatchHeader) -> str:
    if header.magic == 0:
        return "NoTimestampType"
    return "LogAppendTime" if header.log_append_time else "CreateTime"


@each("name", TOPICS)
def test_stored_records_are_read_as_by_kafkas_consumer(name: str) -> None:
    topic = TOPICS[name]
    found = []
    for data in golden.segments(name).values():
        position = 0
        for position, header in formats.headers(data):
            assert formats.crc_matches(data, position, header), (name, position)
            if not header.is_control:
                found += [golden.Stored(kind_of(header), plain(r)) for r in formats.records(data, position)]
            position += header.size_bytes
        assert position == len(data)
    assert found == topic.records


@each("name", TOPICS)
def test_headers_of_stored_entries_have_format_codec_and_last_offset(name: str) -> None:
    topic = TOPICS[name]
    entries = golden.stored_entries(name)
    if name == "mixed":
        assert [magic for magic, _ in sorted({(h.magic, 0) for _, h in entries})] == [0, 1, 2]
    else:
        assert {header.magic for _, header in entries} == {topic.magic}
    if name[:3] in ("v0-", "v1-", "v2-", "up-") and name != "up-append":
        assert {Codec(header.codec).name.lower() for _, header in entries} == {name[3:]}
    ends = [header.last_offset for _, header in entries]
    assert ends == sorted(set(ends)) and ends[-1] == topic.end_offset - 1
    for data, header in entries:
        found = [record.offset for record in formats.records(data)]
        if header.magic < 2:
            assert found[-1] == header.last_offset
            assert header.record_count == (-1 if header.codec else 1)
        else:
            assert header.base_offset <= found[0] and found[-1] <= header.last_offset


def test_compacted_wrappers_and_batches_have_offset_gaps() -> None:
    """The tests of gaps need them."""
    for name in ("gaps-v0-gzip", "gaps-v1-gzip", "gaps-v2-none", "gaps-v2-gzip"):
        gaps = 0
        for data, _ in golden.stored_entries(name):
            offsets = [record.offset for record in formats.records(data)]
            gaps += offsets != list(range(offsets[0], offsets[0] + len(offsets)))
        assert gaps, name


def sent_records(write: golden.Write) -> list[Record]:
    """Returns the records of a Produce request by Ottla's readers, with the sender's offsets."""
    found: list[Record] = []
    for position, header in formats.headers(write.records):
        assert formats.crc_matches(write.records, position, header)
        read = batch.records if header.magic == 2 else legacy.records
        options = {"produced": True} if header.magic < 2 else {}
        found += [plain(record) for record in read(write.records, position, **options)]
    return found


@each("write", TAKEN)
def test_requests_of_clients_contain_the_sent_records(write: golden.Write) -> None:
    """Java 0.8.2 to 3.9, kafka-python 2.0.2 and librdkafka: keys and values are those that a consumer read."""
    expected = {stored.record.offset: stored for stored in TOPICS[write.topic].records}
    found = sent_records(write)
    assert found
    assert {header.magic for _, header in formats.headers(write.records)} == {min(2, max(0, write.produce_version - 1))}
    for number, record in enumerate(found):
        offset = write.base_offset + number
        if offset not in expected:
            assert write.topic.startswith("gaps-")
            continue
        kind, kept = expected[offset]
        assert (record.key, record.value) == (kept.key, kept.value)
        if kind == "CreateTime":
            assert record.timestamp == kept.timestamp
        if record.headers:
            assert record.headers == kept.headers


def test_requests_cover_every_codec_and_client() -> None:
    """Including the old lz4 header of KIP-57: its checksum covers the magic number, and no frame reader accepts it."""
    seen = {(write.client, write.codec) for write in TAKEN}
    for client in ("Java 0.8.2.2", "Java 0.10.2.2", "kafka-python 2.0.2 as 0.9", "librdkafka, fallback 0.8.2"):
        assert {(client, codec) for codec in CODECS[:4]} <= seen, client
    assert ("Java 2.8.2", "zstd") in seen
