"""The stored bytes of a Produce request, compared with those of Apache Kafka 2.8.2 and 3.9.1, byte for byte.

For recompressed batches the compressor may choose other bytes for the same contents: their header fields and records
are compared.
"""

from __future__ import annotations

import pytest

from ottla.protocol.records import formats, validate
from ottla.protocol.records.compression import Codec
from ottla.protocol.records.errors import UnsupportedForFormat, Unwritable
from ottla.protocol.records.rules import Rules
from ottla_testing.each import each
from ottla_testing.oracle import golden

TOPICS = golden.topics()
WRITES = [write for write in golden.writes() if not write.topic.startswith("gaps-")]  # those were compacted afterwards
NOW_MS = 1_800_000_000_000


def names(write: golden.Write) -> str:
    return f"{write.topic}-{write.base_offset}-{write.client}-{write.codec}".replace(" ", "-")


def rules_of(write: golden.Write) -> Rules:
    """Returns the topic's rules at the time of the write."""
    topic = TOPICS[write.topic]
    codec = topic.configs.get("compression.type")
    magic = min(2, write.base_offset // 20) if write.topic == "mixed" else topic.magic
    return Rules(
        target_magic=magic,
        log_append_time=topic.configs.get("message.timestamp.type") == "LogAppendTime",
        compression=Codec[codec.upper()] if codec else None,
    )


def stored_of(write: golden.Write) -> tuple[bytes, int]:
    """Returns (the entries of a request's records, their append time or -1). All have five records, except in
    transactions."""
    count = 3 if write.client.endswith("transactional") else 5
    data = b""
    append_ms = -1
    for entry, header in golden.stored_entries(write.topic):
        if write.base_offset <= header.last_offset < write.base_offset + count and not header.is_control:
            data += entry
            append_ms = header.max_timestamp if header.log_append_time else append_ms
    return data, append_ms


def outline(data: bytes) -> list[tuple[object, ...]]:
    """Returns the fields of a set except sizes, CRCs and compressed bytes."""
    return [
        (header._replace(batch_length=0, crc=0), *formats.records(data, position))
        for position, header in formats.headers(data)
    ]


@each("write", [w for w in WRITES if w.base_offset >= 0])
def test_produced_records_are_stored_as_by_kafka(write: golden.Write) -> None:
    rules = rules_of(write)
    stored, append_ms = stored_of(write)
    now_ms = append_ms if append_ms >= 0 else NOW_MS
    prepared = validate.prepare(bytearray(write.records), rules, now_ms, write.produce_version)
    placed = validate.place(prepared, write.base_offset, 0)
    ours = bytes(placed.buffer)
    assert outline(ours) == outline(stored)
    assert placed.log_append_time_ms == append_ms
    assert list(placed.headers) == [header for _, header in formats.headers(ours)]
    sent = next(formats.headers(write.records))[1]
    unchanged = sent.magic == rules.target_magic and (rules.compression is None or rules.compression == sent.codec)
    # Offsets inside a v0 wrapper are absolute: Kafka compresses it again, and so does Ottla.
    if (rules.compression is None and write.codec == "none") or (unchanged and sent.magic > 0):
        assert ours == stored


def test_enough_requests_are_compared_byte_for_byte() -> None:
    exact = [w for w in WRITES if w.codec == "none" and w.base_offset >= 0]
    assert len(exact) > 20 and {rules_of(w).target_magic for w in exact} == {0, 1, 2}


REFUSED = [write for write in WRITES if write.base_offset < 0]


@each("write", REFUSED)
def test_requests_refused_by_kafka_are_refused(write: golden.Write) -> None:
    """Headers, which v0 and v1 cannot hold, and idempotent batches."""
    expected = {"UnsupportedForMessageFormatException": UnsupportedForFormat, "UnknownServerException": Unwritable}
    with pytest.raises(expected[write.error]):
        validate.prepare(bytearray(write.records), rules_of(write), NOW_MS, write.produce_version)


def test_requests_cover_each_kind_of_refusal() -> None:
    assert len(REFUSED) == 16 and len({write.error for write in REFUSED}) == 2
