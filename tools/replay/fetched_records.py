"""The comparison of fetched records: matched by offset, independent of their distribution over responses.

The number of records in a Fetch response depends on timing. A record is therefore kept until the other side has read
it, too; the rest was read on one side only. The high watermark, last stable offset and log start offset of a response
also depend on timing: only their presence is compared.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from ...protocol.named import NamedTuple
from ...protocol.primitives import ZERO_UUID
from ...protocol.records import formats
from ...protocol.records.errors import CorruptRecords, InvalidRecords, UnsupportedCodec
from .name_mapping import Ids, Place
from .value_comparison import Difference

BROKERS_OWN = frozenset({"__consumer_offsets", "__transaction_state", "__cluster_metadata", "__share_group_state"})
SHOWN = 3  # different records shown for each partition of a response
UNREAD_MAX = 1_000_000  # records kept until the other side has read them
_ENDS = ("high_watermark", "last_stable_offset", "log_start_offset")
Stream = tuple[int, str, int]  # connection, topic, partition


class Read(NamedTuple):
    """A record that one side has read: the exchange, a digest, and the parts if they are small."""

    number: int
    digest: bytes
    parts: dict[str, Any] | None


class Unread(NamedTuple):
    """A range of records that only one side has read, in one response."""

    number: int
    topic: str
    partition: int
    first: int
    last: int
    is_left: bool


class Fetched:
    """The records read so far."""

    def __init__(self, ids: Ids, *, same_times: bool = True) -> None:
        """Without `same_times` the records of both sides were produced at different times: timestamps are ignored."""
        self._ids = ids
        self._same_times = same_times
        self._waiting: tuple[dict[Stream, dict[int, Read]], dict[Stream, dict[int, Read]]] = ({}, {})
        self._count = 0

    def compare(
        self, connection: int, number: int, left: Any, right: Any, topics: Mapping[bytes, str]
    ) -> list[Difference]:
        """Returns the differences between two responses; the ids of `left` are mapped to the right's already."""
        if left.error_code != right.error_code:
            return [Difference(".error_code", left.error_code, right.error_code)]
        one, other = _partitions(left, topics), _partitions(right, topics)
        found: list[Difference] = []
        for place in {**one, **other}:
            found += self._partition(connection, number, place, one.get(place), other.get(place))
        return found

    def _partition(self, connection: int, number: int, place: Place, left: Any, right: Any) -> list[Difference]:
        path = f".responses[{place.topic}].partitions[{place.partition}]"
        found: list[Difference] = []
        codes = [0 if one is None else one.error_code for one in (left, right)]
        if codes[0] != codes[1]:
            return [Difference(f"{path}.error_code", *codes)]
        if left is not None and right is not None:
            for name in _ENDS:
                one, other = getattr(left, name), getattr(right, name)
                if (one < 0) != (other < 0):
                    found.append(Difference(f"{path}.{name}", one, other))
            replicas = left.preferred_read_replica, right.preferred_read_replica
            if replicas[0] != replicas[1]:
                found.append(Difference(f"{path}.preferred_read_replica", *replicas))
        if place.topic in BROKERS_OWN:
            return found
        stream = connection, place.topic, place.partition
        shift = self._ids.shift(place)
        shown = 0
        for is_left, response in ((True, left), (False, right)):
            for offset, parts in () if response is None else read_records(response.records):
                if not self._same_times:
                    parts.pop("timestamp", None)
                differs = self._take(stream, number, offset + (shift if is_left else 0), parts, is_left)
                shown += bool(differs)
                if differs and shown <= SHOWN:
                    found += [Difference(f"{path}.records[{offset}].{name}", *values) for name, *values in differs]
        return found

    def _take(
        self, stream: Stream, number: int, offset: int, parts: dict[str, Any], is_left: bool
    ) -> list[tuple[str, Any, Any]]:
        """Registers a record of one side; returns the differences from the other side's, if that was read before."""
        digest = hashlib.blake2b(repr(parts).encode(), digest_size=16).digest()
        mine, others = self._waiting[not is_left].setdefault(stream, {}), self._waiting[is_left].setdefault(stream, {})
        there = others.pop(offset, None)
        if there is None:
            if offset not in mine and self._count < UNREAD_MAX:
                self._count += 1
                mine[offset] = Read(number, digest, parts if len(repr(parts)) < 400 else None)
            return []
        self._count -= 1
        if there.digest == digest:
            return []
        if there.parts is None:
            return [("contents", "other bytes", "other bytes")]
        left, right = (parts, there.parts) if is_left else (there.parts, parts)
        return [
            (name, left.get(name), right.get(name)) for name in {**left, **right} if left.get(name) != right.get(name)
        ]

    def unread(self) -> Iterator[Unread]:
        """Yields the ranges of records that only one side has read."""
        for is_left, streams in zip((True, False), self._waiting, strict=True):
            for (_, topic, partition), waiting in streams.items():
                run: list[int] = []
                for offset in sorted(waiting):
                    number = waiting[offset].number
                    if run and (offset > run[-1] + 1 or number != waiting[run[-1]].number):
                        yield Unread(waiting[run[0]].number, topic, partition, run[0], run[-1], is_left)
                        run = []
                    run.append(offset)
                if run:
                    yield Unread(waiting[run[0]].number, topic, partition, run[0], run[-1], is_left)


def _partitions(response: Any, topics: Mapping[bytes, str]) -> dict[Place, Any]:
    found: dict[Place, Any] = {}
    for topic in response.responses:
        name = topic.topic
        if not name and topic.topic_id != ZERO_UUID:
            name = topics.get(bytes(topic.topic_id), bytes(topic.topic_id).hex())
        for one in topic.partitions:
            found[Place(topic=name, partition=one.partition_index)] = one
    return found


def read_records(records: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields (offset, parts) of each record, with fields of its batch. A damaged batch is one "record"."""
    if not records:
        return
    try:
        for position, header in formats.headers(records):
            of_batch: dict[str, Any] = {"magic": header.magic, "codec": header.codec}
            if header.log_append_time:
                of_batch["timestamp_type"] = "LogAppendTime"
            if header.producer_id >= 0:
                of_batch |= {"producer_id": header.producer_id, "producer_epoch": header.producer_epoch}
            if header.is_transactional:
                of_batch["transactional"] = True
            if not formats.crc_matches(records, position, header):
                of_batch["crc"] = "wrong"
            try:
                for one in formats.records(records, position):
                    yield one.offset, {**of_batch, **_parts(one, header)}
            except (CorruptRecords, InvalidRecords, UnsupportedCodec) as error:
                yield header.base_offset, {**of_batch, "damaged": str(error)}
    except CorruptRecords as error:
        yield 0, {"damaged": str(error)}


def _parts(one: Any, header: Any) -> dict[str, Any]:
    if header.is_control:  # the type is in the key; the rest depends on the coordinator
        return {"control": bytes(one.key or b"")[:4]}
    parts: dict[str, Any] = {"key": one.key, "value": one.value}
    if one.headers:
        parts["headers"] = [tuple(header) for header in one.headers]
    if not header.log_append_time:
        parts["timestamp"] = one.timestamp
    if header.base_sequence >= 0:
        parts["sequence"] = header.base_sequence + one.offset - header.base_offset
    return parts
