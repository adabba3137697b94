"""`golden/directories/` as values, and the comparison of Ottla's logs with what Kafka's own clients read there.

See `make_directories.py`. The directories of `make interop` are compared by the same functions.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from ottla.protocol.records import formats
from ottla.protocol.records.batch import BatchHeader
from ottla.storage.partition_log import PartitionLog
from ottla.storage.producers.txn_index import ABORT, read_marker
from ottla_testing import GOLDEN

DIRECTORIES = GOLDEN / "directories"
RELEASES = ("2.8.2", "3.9.1", "4.3.1")
INTERNAL = ("__cluster_metadata", "__consumer_offsets", "__transaction_state")

Seen = tuple[int, str, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


class TopicContents(NamedTuple):
    """The contents of a topic according to Kafka's clients. `records`: offset, kind of timestamp, timestamp, key,
    value, headers.

    `committed`: the offsets that a `read_committed` consumer got. `times`: (requested timestamp, offset, timestamp).
    `answers`: of `read_committed` fetches (offset, offset after the records, {(producer, first offset of an aborted
    transaction)}).
    """

    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    fetches: list[tuple[int, int, set[tuple[int, int]]]]
    times: list[tuple[int, int, int]]
    records: list[Seen]
    committed: list[int]


def unpacked(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def parsed(known: dict[str, Any]) -> TopicContents:
    """Parses the JSON."""
    records = [
        (offset, kind, time, unpacked(key), unpacked(value), tuple((name, unpacked(text)) for name, text in headers))
        for offset, kind, time, key, value, headers in known["records"]
    ]
    return TopicContents(
        known["log_start_offset"],
        known["high_watermark"],
        known["last_stable_offset"],
        [(start, end, {(id, first) for id, first in aborted}) for start, end, aborted in known["answers"]],
        [(time, offset, found) for time, offset, found in known["times"]],
        records,
        known["committed"],
    )


@cache
def stored(release: str) -> dict[str, TopicContents]:
    """Returns the contents of each topic of a release in `golden/directories`."""
    return {name: parsed(known) for name, known in json.loads((DIRECTORIES / f"{release}.json").read_text()).items()}


def kind_of(header: BatchHeader) -> str:
    if header.magic == 0:
        return "NoTimestampType"
    return "LogAppendTime" if header.log_append_time else "CreateTime"


def slices(log: PartitionLog, max_bytes: int) -> Iterator[bytes]:
    """Yields the whole log from its start on, as fetches would get it."""
    offset = log.log_start_offset
    while data := bytes(log.read(offset, max_bytes).records):
        yield data
        offset = [header for _, header in formats.headers(data)][-1].next_offset


def committed_fetches(log: PartitionLog, max_bytes: int) -> list[tuple[int, int, set[tuple[int, int]]]]:
    """Returns the whole log as `read_committed` fetches would get it, like `TopicContents.answers`."""
    return [(offset, end, aborted) for offset, end, aborted, _ in committed_slices(log, max_bytes)]


def committed_slices(log: PartitionLog, max_bytes: int) -> Iterator[tuple[int, int, set[tuple[int, int]], bytes]]:
    """Yields the same with the batches."""
    offset = log.log_start_offset
    while data := bytes((found := log.read(offset, max_bytes, committed=True)).records):
        end = [header for _, header in formats.headers(data)][-1].next_offset
        yield offset, end, {(one.producer_id, one.first_offset) for one in found.aborted}, data
        offset = end


def committed(log: PartitionLog, max_bytes: int) -> list[int]:
    """Returns the offsets that a `read_committed` consumer of Ottla would return: consumers drop the records between
    the first offset of an aborted transaction and its marker."""
    found: list[int] = []
    for start, _, aborted, data in committed_slices(log, max_bytes):
        begins = sorted((first, producer_id) for producer_id, first in aborted)
        dropped: set[int] = set()
        for position, header in formats.headers(data):
            while begins and begins[0][0] <= header.last_offset:
                dropped.add(begins.pop(0)[1])
            if header.is_control:
                marker = read_marker(data, position, header)
                if marker is not None and marker.kind == ABORT:
                    dropped.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in dropped):
                found += [r.offset for r in formats.records(data, position) if r.offset >= start]
    return found


def seen(log: PartitionLog, max_bytes: int) -> list[Seen]:
    """Returns the records that a consumer of Ottla would return: it drops control batches and records below its
    start."""
    found: list[Seen] = []
    for data in slices(log, max_bytes):
        for position, header in formats.headers(data):
            if header.is_control:
                continue
            for r in formats.records(data, position):
                if r.offset >= log.log_start_offset:
                    headers = tuple((name, value) for name, value in r.headers)
                    found.append((r.offset, kind_of(header), r.timestamp, r.key, r.value, headers))
    return found


def differences(log: PartitionLog, known: TopicContents) -> list[str]:
    """Returns all differences between Ottla's log and what Kafka's clients read; empty if there are none."""
    found = [
        f"{name} {ours}, Kafka {theirs}"
        for name, ours, theirs in (
            ("log start", log.log_start_offset, known.log_start_offset),
            ("high watermark", log.high_watermark, known.high_watermark),
            ("last stable offset", log.last_stable_offset, known.last_stable_offset),
            ("committed fetches", committed_fetches(log, 1 << 20), known.fetches),
            ("committed records", committed(log, 1 << 20), known.committed),
            ("committed records one by one", committed(log, 1), known.committed),
        )
        if ours != theirs
    ]
    for max_bytes in (1 << 20, 1):
        ours = seen(log, max_bytes)
        for one, other in zip(ours, known.records, strict=False):
            if one != other:
                found.append(f"record {str(one)[:300]}, Kafka {str(other)[:300]}")
                break
        if len(ours) != len(known.records):
            found.append(f"{len(ours)} records in slices of {max_bytes} bytes, Kafka {len(known.records)}")
    for time_ms, offset, timestamp in known.times:
        result = log.find_timestamp(time_ms)
        at = (-1, -1) if result is None else (result.offset, result.timestamp_ms)
        if at != (offset, timestamp):
            found.append(f"time {time_ms} found at {at}, Kafka {(offset, timestamp)}")
    return found
