"""`golden/directories/` as values, and the comparison of a log of ours with what Kafka's own clients read there.

See `make_directories.py`. What `make interop` has a Kafka write anew is compared by the same functions.
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


class Told(NamedTuple):
    """What Kafka's clients said of a topic. `records`: offset, kind of timestamp, timestamp, key, value, headers.

    `committed`: the offsets that a `read_committed` consumer got. `times`: (timestamp asked for, offset, timestamp).
    `answers`: of `read_committed` fetches (offset, offset behind what came, {(producer, first offset of a transaction
    that was aborted)}).
    """

    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    answers: list[tuple[int, int, set[tuple[int, int]]]]
    times: list[tuple[int, int, int]]
    records: list[Seen]
    committed: list[int]


def unpacked(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def parsed(told: dict[str, Any]) -> Told:
    """From JSON."""
    records = [
        (offset, kind, time, unpacked(key), unpacked(value), tuple((name, unpacked(text)) for name, text in headers))
        for offset, kind, time, key, value, headers in told["records"]
    ]
    return Told(
        told["log_start_offset"],
        told["high_watermark"],
        told["last_stable_offset"],
        [(start, end, {(id, first) for id, first in aborted}) for start, end, aborted in told["answers"]],
        [(time, offset, found) for time, offset, found in told["times"]],
        records,
        told["committed"],
    )


@cache
def stored(release: str) -> dict[str, Told]:
    """What was told of each topic of a release in `golden/directories`."""
    return {name: parsed(told) for name, told in json.loads((DIRECTORIES / f"{release}.json").read_text()).items()}


def kind_of(header: BatchHeader) -> str:
    if header.magic == 0:
        return "NoTimestampType"
    return "LogAppendTime" if header.log_append_time else "CreateTime"


def slices(log: PartitionLog, max_bytes: int) -> Iterator[bytes]:
    """The whole log from its start on, as fetches would get it."""
    offset = log.log_start_offset
    while data := bytes(log.read(offset, max_bytes).records):
        yield data
        offset = [header for _, header in formats.headers(data)][-1].next_offset


def committed_answers(log: PartitionLog, max_bytes: int) -> list[tuple[int, int, set[tuple[int, int]]]]:
    """The whole log as `read_committed` fetches would get it, as `Told.answers`."""
    return [(offset, end, aborted) for offset, end, aborted, _ in committed_slices(log, max_bytes)]


def committed_slices(log: PartitionLog, max_bytes: int) -> Iterator[tuple[int, int, set[tuple[int, int]], bytes]]:
    """The same with the batches."""
    offset = log.log_start_offset
    while data := bytes((found := log.read(offset, max_bytes, committed=True)).records):
        end = [header for _, header in formats.headers(data)][-1].next_offset
        yield offset, end, {(one.producer_id, one.first_offset) for one in found.aborted}, data
        offset = end


def committed(log: PartitionLog, max_bytes: int) -> list[int]:
    """The offsets that a `read_committed` consumer of ours would hand out: as consumers do it drops what lies between
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
    """What a consumer of ours would see of a log: it drops control batches and what lies below where it began."""
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


def differences(log: PartitionLog, told: Told) -> list[str]:
    """All in which a log of ours is not what Kafka's clients saw; empty if it is the same."""
    found = [
        f"{name} {ours}, Kafka {theirs}"
        for name, ours, theirs in (
            ("log start", log.log_start_offset, told.log_start_offset),
            ("high watermark", log.high_watermark, told.high_watermark),
            ("last stable offset", log.last_stable_offset, told.last_stable_offset),
            ("committed answers", committed_answers(log, 1 << 20), told.answers),
            ("committed records", committed(log, 1 << 20), told.committed),
            ("committed records one by one", committed(log, 1), told.committed),
        )
        if ours != theirs
    ]
    for max_bytes in (1 << 20, 1):
        ours = seen(log, max_bytes)
        for one, other in zip(ours, told.records, strict=False):
            if one != other:
                found.append(f"record {str(one)[:300]}, Kafka {str(other)[:300]}")
                break
        if len(ours) != len(told.records):
            found.append(f"{len(ours)} records in slices of {max_bytes} bytes, Kafka {len(told.records)}")
    for time_ms, offset, timestamp in told.times:
        result = log.find_timestamp(time_ms)
        at = (-1, -1) if result is None else (result.offset, result.timestamp_ms)
        if at != (offset, timestamp):
            found.append(f"time {time_ms} found at {at}, Kafka {(offset, timestamp)}")
    return found
