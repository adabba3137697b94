"""Brokers as a place where logs are: which partitions there are, where they begin and end, and the work of reading."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from ....client.consumer.list_offsets import EARLIEST, LATEST, OffsetLookup
from ....client.net.cluster import Cluster, Topic
from ....client.net.errors import ClientError, KafkaError
from ....client.net.metadata import topic_of
from ....client.net.retry import retry
from ....protocol.errors import ErrorCode
from ....protocol.primitives import ZERO_UUID
from ...backend import OffsetRange, Offsets, ReadError, Selection, TopicPartition, Wanted
from ...offsets import MAX_PIECES
from .config import client_options
from .connection import addresses, open_cluster, told
from .event_loop import Loop, ThreadLoop
from .piece import WirePiece
from .ranges import split

__all__ = ["INTERNAL", "WireBackend"]

INTERNAL = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"})
"""The brokers' own topics, also where brokers do not tell which these are."""

LOOKUP_S = 5.0
"""After that time without all offsets, topics are asked for anew: one may have been deleted meanwhile."""

T = TypeVar("T")


class WireBackend:
    """Fulfils `Backend` with the brokers that `config` names: the `kafka.*` options without their prefix.

    A context manager; it connects when something is first asked. Every method raises ReadError, which names brokers.
    """

    def __init__(self, config: Mapping[str, str]) -> None:
        self._config = dict(config)
        self._options = client_options(config)
        self._patience_s = self._options.default_api_timeout_ms / 1000
        self._loop: Loop | None = None
        self._cluster: Cluster | None = None
        self._ids: dict[str, bytes] = {}

    def __enter__(self) -> WireBackend:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections. May be called again; what is asked afterwards connects anew."""
        loop, cluster = self._loop, self._cluster
        self._loop = self._cluster = None
        if loop is not None:
            if cluster is not None:
                loop.run(cluster.close())
            loop.close()

    def _run(self, what: str, work: Callable[[Cluster], Coroutine[Any, Any, T]]) -> T:
        """Does something with the cluster, as often as may help until time is over."""
        loop = self._loop = self._loop or ThreadLoop()

        async def done() -> T:
            # Within the loop, so that callers in several threads share one cluster.
            cluster = await self._opened()
            try:
                return await retry(lambda: work(cluster), cluster.retry_backoff_s, self._patience_s)
            except ClientError as error:
                raise ReadError(f"{what} cannot be learned: {told(error, cluster)}") from error

        return loop.run(done())

    async def _opened(self) -> Cluster:
        if self._cluster is None:
            cluster = await open_cluster(self._options)
            if self._cluster is None:
                self._cluster = cluster
            else:
                await cluster.close()
        return self._cluster

    # What Backend asks

    def partitions(self, selection: Selection) -> list[TopicPartition]:
        """The partitions that there are now, sorted. A topic or partition that was named and is not there is an error,
        and none is made by asking."""
        named = set(selection.topics or ()) | {key.topic for key in selection.assigned or ()}
        by_name = selection.topics is not None or selection.assigned is not None

        async def asked(cluster: Cluster) -> tuple[dict[str, Topic], frozenset[str]]:
            topics = await _described(cluster, named if by_name else None)
            internal = INTERNAL | {name for name, topic in topics.items() if topic.is_internal}
            _check([topic for name, topic in topics.items() if by_name or _selects(selection, name, internal)])
            return topics, internal

        topics, internal = self._run("the topics of the cluster", asked)
        self._ids.update((name, topic.id) for name, topic in topics.items())
        known = [TopicPartition(name, number) for name, topic in topics.items() for number in topic.partitions]
        self._check_named(named, selection.assigned or (), known)
        return selection.of(known, internal)

    def _check_named(
        self, topics: Iterable[str], partitions: Iterable[TopicPartition], known: Iterable[TopicPartition]
    ) -> None:
        there = set(known)
        names = {key.topic for key in there}
        for name in sorted(set(topics) - names):
            raise ReadError(f"topic {name!r} does not exist (brokers at {addresses(self._options)})")
        for key in sorted(set(partitions) - there):
            raise ReadError(f"partition {key} does not exist (brokers at {addresses(self._options)})")

    def earliest(self, of: Sequence[TopicPartition]) -> Offsets:
        """The log start offsets. Partitions that are gone are left out."""
        return self._offsets("where partitions begin", dict.fromkeys(of, EARLIEST), committed=False)

    def latest(self, of: Sequence[TopicPartition], *, committed: bool) -> Offsets:
        """High watermarks, or last stable offsets, as the leaders tell them. Gone partitions are left out."""
        return self._offsets("where partitions end", dict.fromkeys(of, LATEST), committed=committed)

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset whose record is as late as this, or later (epoch milliseconds); None if there is none.

        Brokers before 0.10.1 cannot tell: ReadError.
        """
        # Negative ones mean something else to brokers; records of the old formats may have -1.
        asked = {key: time_ms if time_ms >= 0 else EARLIEST for key, time_ms in times.items()}
        found = self._offsets("offsets of times", asked, committed=False)
        return {key: offset if offset >= 0 else None for key, offset in found.items()}

    def topic_id(self, topic: str) -> bytes:
        """The id that a topic had when its partitions were last listed; ZERO_UUID where none was told."""
        return self._ids.get(topic, ZERO_UUID)

    def _offsets(self, what: str, wanted: Mapping[TopicPartition, int], *, committed: bool) -> Offsets:
        if not wanted:
            return {}

        async def looked_up(cluster: Cluster) -> Offsets:
            # Asked of what is there only: brokers would wait for the others, or make them.
            topics = await _described(cluster, {key.topic for key in wanted})
            _check(topics.values())
            left = {(key.topic, key.partition): asked for key, asked in wanted.items() if _is_there(topics, key)}
            await cluster.refresh({topic for topic, _ in left})
            found = await OffsetLookup(cluster, committed).all(left, min(LOOKUP_S, self._patience_s))
            return {TopicPartition(*key): one.offset for key, one in found.items()}

        return self._run(what, looked_up)

    def pieces(self, ranges: Sequence[OffsetRange], wanted: Wanted, *, at_least: int | None) -> list[WirePiece]:
        """One per range, or more where `at_least` (minPartitions) asks for it; see `split`.

        With `wanted.from_ms` they begin at the first records of that time, as brokers know them.
        """
        if at_least is not None and at_least > MAX_PIECES:
            raise ReadError(f"minPartitions is {at_least}: that many tasks are over {MAX_PIECES}")
        ranges = [one for one in ranges if one.size]
        if wanted.from_ms is not None:
            ranges = self._since(ranges, wanted.from_ms)
        return [
            WirePiece(self._config, one, wanted, self._ids.get(one.topic, ZERO_UUID)) for one in split(ranges, at_least)
        ]

    def _since(self, ranges: list[OffsetRange], from_ms: int) -> list[OffsetRange]:
        """Only a hint: where brokers cannot tell, all is read."""
        try:
            firsts = self.at_times({one.key: from_ms for one in ranges})
        except ReadError:
            return ranges
        found: list[OffsetRange] = []
        for one in ranges:
            # A partition that is gone by now is for the task to complain of.
            first = firsts.get(one.key, one.start)
            if first is not None and first < one.end:
                found.append(one._replace(start=max(one.start, first)))
        return found


async def _described(cluster: Cluster, names: Iterable[str] | None) -> dict[str, Topic]:
    """What the brokers tell of these topics, or of all; none is made by asking, and those that are not there lack."""
    told = (await cluster.metadata(names)).topics
    topics = {one.name: topic_of(one) for one in told if one.name is not None}
    return {name: topic for name, topic in topics.items() if topic.error != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def _check(topics: Iterable[Topic]) -> None:
    """A topic that cannot be described is not one that is not there. Raises KafkaError."""
    for topic in topics:
        if topic.error:
            raise KafkaError(topic.error, f"topic {topic.name!r}")


def _selects(selection: Selection, name: str, internal: frozenset[str]) -> bool:
    return bool(selection.of([TopicPartition(name, 0)], internal))


def _is_there(topics: Mapping[str, Topic], key: TopicPartition) -> bool:
    known = topics.get(key.topic)
    return known is not None and key.partition in known.partitions
