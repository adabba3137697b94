"""A backend over brokers: the partitions, their start and end offsets, and the work of reading, a range of one
partition from its leader for each task.

`commit_offsets` shows the progress of a reader as offsets of a consumer group.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa

from ....client.consumer.group_offsets import NOT_A_MEMBER, GroupOffsets, OffsetAndMetadata
from ....client.consumer.list_offsets import EARLIEST, LATEST, OffsetLookup
from ....client.net.cluster import Cluster, Topic
from ....client.net.errors import KafkaError
from ....client.net.metadata import topic_of
from ....client.net.retry import retry
from ....client.net.security import Settings
from ....protocol.errors import ErrorCode
from ....protocol.primitives import ZERO_UUID
from ...backend import INTERNAL, OffsetRange, Offsets, ReadError, Selection, TopicPartition, Wanted
from ...offsets import MAX_PIECES
from .config import client_options
from .connection import ClusterCalls, addresses, open_cluster
from .decoding import Decoder
from .event_loop import ThreadLoop, loop_here
from .fetch import RangeFetch

LOOKUP_S = 5.0
"""After this time without all offsets, the topics are described again: one may have been deleted meanwhile."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WirePiece:
    """Records of a range; picklable. `config` has the `kafka.*` options without their prefix, `topic_id` is the topic's
    id at planning time (ZERO_UUID if unknown)."""

    config: Settings
    range: OffsetRange
    wanted: Wanted
    topic_id: bytes = ZERO_UUID

    def read(self) -> Generator[pa.RecordBatch, None, None]:
        """Yields the records in order, with the wanted columns. Connects at the first one; closes at the end, or when
        the iterator is closed. Raises ReadError and DataLoss, which name the broker and the offset."""
        options = client_options(self.config)
        if not self.range.size:
            return
        loop = loop_here()
        decoder = Decoder(self.wanted, self.range)
        try:
            cluster = loop.run(open_cluster(options))
            try:
                fetch = RangeFetch(cluster, options, self.range, self.wanted, self.topic_id)
                while (fetched := loop.run(fetch.next())) is not None:
                    loop.run_ready()  # sends the next Fetch
                    for found in decoder.rows(fetched):
                        loop.run_ready()
                        yield found
            finally:
                loop.run(cluster.close())
        finally:
            loop.close()
            decoder.close()


class WireBackend:
    """Implements `Backend` with the brokers of `config`: the `kafka.*` options without their prefix.

    A context manager that connects on first use. Every method raises ReadError, which names the brokers.
    """

    def __init__(self, config: Mapping[str, str]) -> None:
        self._config = Settings(config)
        self._options = client_options(config)
        self._patience_s = self._options.default_api_timeout_ms / 1000
        self._calls = ClusterCalls(self._options, make_loop=ThreadLoop)
        self._ids: dict[str, bytes] = {}

    def __enter__(self) -> WireBackend:
        return self

    def __exit__(self, *_: object) -> None:
        """Closes the connections; a later call of another method connects again."""
        self._calls.close()

    def _run(self, what: str, work: Callable[[Cluster], Coroutine[Any, Any, T]]) -> T:
        """Runs `work` on the cluster, with retries until default.api.timeout.ms is over."""

        async def done(cluster: Cluster) -> T:
            return await retry(lambda: work(cluster), cluster.retry_backoff_s, self._patience_s)

        return self._calls.read(f"cannot fetch {what}", done)

    # Backend

    def partitions(self, selection: Selection) -> list[TopicPartition]:
        """Returns the selected partitions that exist, sorted. Raises ReadError for a named topic or partition that does
        not exist, and never creates a topic."""
        named = set(selection.topics or ()) | {key.topic for key in selection.assigned or ()}
        by_name = selection.topics is not None or selection.assigned is not None

        async def described(cluster: Cluster) -> tuple[dict[str, Topic], frozenset[str]]:
            topics = await _described(cluster, named if by_name else None)
            # Old brokers do not report their internal topics as internal.
            internal = INTERNAL | {name for name, topic in topics.items() if topic.is_internal}
            selected = {key.topic for key in selection.of([TopicPartition(name, 0) for name in topics], internal)}
            _check([topic for name, topic in topics.items() if by_name or name in selected])
            return topics, internal

        topics, internal = self._run("the topics of the cluster", described)
        self._ids.update((name, topic.id) for name, topic in topics.items())
        known = [TopicPartition(name, number) for name, topic in topics.items() for number in topic.partitions]
        absent = [f"topic {name!r}" for name in sorted(named - {key.topic for key in known})]
        absent += [f"partition {key}" for key in sorted(set(selection.assigned or ()) - set(known))]
        if absent:
            raise ReadError(f"{absent[0]} does not exist (brokers at {addresses(self._options)})")
        return selection.of(known, internal)

    def earliest(self, of: Sequence[TopicPartition]) -> Offsets:
        return self._offsets("log start offsets", dict.fromkeys(of, EARLIEST), committed=False)

    def latest(self, of: Sequence[TopicPartition], *, committed: bool) -> Offsets:
        return self._offsets("log end offsets", dict.fromkeys(of, LATEST), committed=committed)

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Raises ReadError for brokers before 0.10.1, which lack this lookup."""
        # Negative timestamps are special values of ListOffsets, and v0/v1 records may have -1.
        lookups = {key: time_ms if time_ms >= 0 else EARLIEST for key, time_ms in times.items()}
        found = self._offsets("offsets by timestamp", lookups, committed=False)
        return {key: offset if offset >= 0 else None for key, offset in found.items()}

    def topic_id(self, topic: str) -> bytes:
        """Returns the id of a topic from the last listing of its partitions; ZERO_UUID if the brokers reported none."""
        return self._ids.get(topic, ZERO_UUID)

    def _offsets(self, what: str, wanted: Mapping[TopicPartition, int], *, committed: bool) -> Offsets:
        if not wanted:
            return {}

        async def looked_up(cluster: Cluster) -> Offsets:
            # Only existing partitions are looked up: for others a broker may wait, or create the topic.
            topics = await _described(cluster, {key.topic for key in wanted})
            _check(topics.values())
            there = {(name, number) for name, topic in topics.items() for number in topic.partitions}
            left: dict[tuple[str, int], int] = {key: at for key, at in wanted.items() if key in there}
            await cluster.refresh({topic for topic, _ in left})
            found = await OffsetLookup(cluster, committed).all(left, min(LOOKUP_S, self._patience_s))
            return {TopicPartition(*key): one.offset for key, one in found.items()}

        return self._run(what, looked_up)

    def pieces(self, ranges: Sequence[OffsetRange], wanted: Wanted, *, at_least: int | None) -> list[WirePiece]:
        """Returns one piece per range, or more if `at_least` (minPartitions) requires it; see `split`. With
        `wanted.from_ms` they begin at the first record with that timestamp, as the brokers report it."""
        if at_least is not None and at_least > MAX_PIECES:
            raise ReadError(f"minPartitions is {at_least}: at most {MAX_PIECES} tasks are allowed")
        ranges = [one for one in ranges if one.size]
        if wanted.from_ms is not None:
            ranges = self._since(ranges, wanted.from_ms)
        return [
            WirePiece(self._config, one, wanted, self._ids.get(one.topic, ZERO_UUID)) for one in split(ranges, at_least)
        ]

    def _since(self, ranges: list[OffsetRange], from_ms: int) -> list[OffsetRange]:
        """Narrows the ranges by timestamp; without support by the brokers, the ranges stay whole."""
        try:
            firsts = self.at_times({one.key: from_ms for one in ranges})
        except ReadError:
            return ranges
        found: list[OffsetRange] = []
        for one in ranges:
            # The task reports a partition that no longer exists.
            first = firsts.get(one.key, one.start)
            if first is not None and first < one.end:
                found.append(one._replace(start=max(one.start, first)))
        return found


async def _described(cluster: Cluster, names: Iterable[str] | None) -> dict[str, Topic]:
    """Returns the brokers' description of these topics, or of all. Creates no topic; missing topics are left out."""
    described = (await cluster.metadata(names)).topics
    topics = {one.name: topic_of(one) for one in described if one.name is not None}
    return {name: topic for name, topic in topics.items() if topic.error != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def _check(topics: Iterable[Topic]) -> None:
    """Raises KafkaError for a topic that could not be described, which does not mean that it does not exist."""
    for topic in topics:
        if topic.error:
            raise KafkaError(topic.error, f"topic {topic.name!r}")


def split(ranges: Sequence[OffsetRange], at_least: int | None) -> list[OffsetRange]:
    """Returns the same offsets, each once and in order, in about `at_least` parts if there are enough offsets: each
    range gets a share by its size, at least one. Empty ranges are left out. Source: Spark's guide on minPartitions, and
    its KafkaOffsetRangeCalculator."""
    found = [one for one in ranges if one.size]
    if at_least is None or len(found) >= at_least:
        return found
    total = sum(one.size for one in found)
    # Ranges that stay whole get one part each first; the others share the rest.
    whole = [_share(one.size, total, at_least) == 1 for one in found]
    to_split = sum(one.size for one, is_whole in zip(found, whole, strict=True) if not is_whole)
    parts = max(1, at_least - sum(whole))
    return [
        part
        for one, is_whole in zip(found, whole, strict=True)
        for part in _parts(one, 1 if is_whole else _share(one.size, to_split, parts))
    ]


def _share(size: int, total: int, parts: int) -> int:
    """Returns Java's Math.round of the proportion, at least one."""
    return max(1, math.floor(size / total * parts + 0.5))


def _parts(one: OffsetRange, count: int) -> list[OffsetRange]:
    """Returns about equal parts, none empty."""
    count = min(count, one.size)
    edges = [one.start]
    for left in range(count, 0, -1):
        edges.append(edges[-1] + (one.end - edges[-1]) // left)
    return [one._replace(start=start, end=end) for start, end in itertools.pairwise(edges)]


def commit_offsets(config: Mapping[str, str], group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Commits these offsets, each that of the next record to read, so that lag tools can show the progress of a reader,
    which is no member of the group.

    Returns when the group's coordinator has stored them. Raises ReadError if no broker responded in time, or if the
    group has members: only these may commit then.
    """
    options = client_options(config)
    if not offsets:
        return

    async def work(cluster: Cluster) -> None:
        # Newer versions of OffsetCommit need topic ids.
        await cluster.refresh({key.topic for key in offsets})
        committed = {(key.topic, key.partition): OffsetAndMetadata(offset) for key, offset in offsets.items()}
        patience_s = options.default_api_timeout_ms / 1000
        await GroupOffsets(cluster, group, stable_only=False).commit(committed, NOT_A_MEMBER, patience_s)

    with ClusterCalls(options) as calls:
        calls.read(f"cannot commit offsets to group {group!r}", work)
