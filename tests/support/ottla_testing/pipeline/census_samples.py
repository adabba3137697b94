"""Counts of a log by the plain decoder, record by record: the expected result of the census by arrays."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ottla.pipeline.jobs.census.facts import Amount, Facts, Sizes, Times, bin_of
from ottla.pipeline.jobs.census.plan import SegmentPiece
from ottla.protocol.records import batch, formats, legacy
from ottla.protocol.records.batch import HEADER_BYTES, BatchHeader, Record
from ottla_testing.pipeline.columnar_samples import FORMATS, NOW, entries, some_records
from ottla_testing.protocol.batches import batch_of


def plain_facts(data: bytes) -> Facts:
    """Returns the counts of whole, undamaged entries."""
    facts = Facts()
    for position, header in formats.headers(data):
        records = list(formats.records(data, position))
        amount = Amount(
            1, 0 if header.is_control else len(records), header.size_bytes, raw_bytes(data, position, header)
        )
        facts.amount(header.magic, header.codec).add(amount)
        facts.largest_entry_bytes = max(facts.largest_entry_bytes, header.size_bytes)
        first = header.base_offset if header.magic == 2 else records[0].offset
        facts.add_range(first, header.next_offset)
        if header.magic == 2 and header.is_control:
            for record in records:
                kind = int.from_bytes((record.key or b"")[2:4], "big")
                facts.commits += kind == 1
                facts.aborts += kind == 0
                facts.other_markers += kind > 1
            continue
        if header.producer_id >= 0:
            facts.producers.add(header.producer_id)
            facts.numbered.add(amount)
            if header.is_transactional:
                facts.transactional.add(amount)
        for record in records:
            add_record(facts, header, record)
    return facts


def add_record(facts: Facts, header: BatchHeader, record: Record) -> None:
    facts.keys.add(size_of(record.key))
    facts.values.add(size_of(record.value))
    facts.with_headers += bool(record.headers)
    facts.headers += len(record.headers)
    facts.header_bytes += sum(
        len(one.key.encode("utf-8", "surrogateescape")) + len(one.value or b"") for one in record.headers
    )
    if header.magic == 0 or record.timestamp == -1:
        facts.untimed += 1
    else:
        times = facts.append if header.log_append_time else facts.create
        times.add(Times(1, record.timestamp, record.timestamp))


def size_of(part: bytes | None) -> Sizes:
    if part is None:
        return Sizes(nulls=1)
    return Sizes(1, 0, len(part), len(part), len(part), {bin_of(len(part)): 1})


def raw_bytes(data: bytes, position: int, header: BatchHeader) -> int:
    if header.magic == 2:
        return HEADER_BYTES + len(batch.payload(data, position, header))
    return len(legacy.inner(data, position, header)) if header.codec else header.size_bytes


def marker(kind: int, offset: int, producer_id: int) -> bytes:
    """Returns a control batch: 0 abort, 1 commit, 2 a leader change."""
    record = Record(offset, NOW, kind.to_bytes(4, "big"), bytes(6))
    options = {"producer_id": producer_id, "producer_epoch": 0, "transactional": kind < 2}
    return bytes(batch_of([record], base_offset=offset, control=True, **options))


def a_log(seed: int, count: int = 40) -> list[bytes]:
    """Returns entries of all formats and codecs, with sequences and transactions, markers, and both timestamp types."""
    made: list[bytes] = []
    offset = 100
    for index in range(count):
        magic, codec = FORMATS[(seed + index) % len(FORMATS)]
        if index % 7 == 3:
            made.append(marker(index % 3, offset, index))
            offset += 1
            continue
        records = some_records(1 + (seed + index) % 5, seed * 1000 + index, first=offset, headers=magic == 2)
        options: dict[str, Any] = {}
        if magic and index % 5 == 0:
            records = [record._replace(timestamp=NOW) for record in records]
            options["log_append_time"] = True
        elif magic and index % 4 == 0:
            records = [record._replace(timestamp=-1) for record in records]
        if magic == 2 and index % 3 == 0:
            options |= {"producer_id": 50 + index % 4, "producer_epoch": 1, "base_sequence": index}
            options["transactional"] = index % 2 == 0
        if magic == 2 and index % 8 == 5:  # as the cleaner leaves it
            options["last_offset_delta"] = records[-1].offset - offset + 3
            made.append(bytes(batch_of(records[:-1], base_offset=offset, codec=codec, **options)))
            offset += options["last_offset_delta"] + 1
            continue
        made.append(entries(records, magic, codec, **options))
        offset = records[-1].offset + 1
    return made


def piece(path: Path, start: int = 0, end: int | None = None, *, is_newest: bool = False) -> SegmentPiece:
    return SegmentPiece("t", 0, str(path), start, path.stat().st_size if end is None else end, is_newest)


def written(path: Path, made: Sequence[bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(made))
    return path
