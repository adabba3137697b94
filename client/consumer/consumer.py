"""The consumer: reading, positions, commits and group membership for an application.

Owns the public calls, deserializers and waiting. Fetch requests are in `fetcher.py`, processed records in `group.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Any

from ..net.cluster import Cluster
from ..net.errors import ClientClosed, ClientError, ConfigError
from ..net.options import field_values
from .classic_group import ClassicGroup
from .consumer_group import ConsumerGroup
from .fetcher import Fetcher
from .group import Group, Progress
from .group_offsets import NOT_A_MEMBER, GroupMetadata, GroupOffsets, OffsetAndMetadata, read_offsets
from .list_offsets import EARLIEST, LATEST, FoundOffset, TopicPartition
from .options import CONSUMER_ALIASES, ConsumerOptions
from .positions import PartitionState
from .records import ConsumerRecord

STOP_COMMIT_S = 30.0

Deserializer = Callable[[bytes | None], Any]


class Consumer:
    """Reads records of topics.

        async with Consumer("127.0.0.1:9092", topics=["greetings"], offset_reset="earliest") as consumer:
            async for record in consumer:
                print(record.value)

    `topics` are names; with `group` their partitions are shared with the other members, without it all are read.
    `assign` are (topic, partition)s instead; with `group` offsets can be committed without a membership. Options are
    those of `ConsumerOptions` and `ClientOptions`; `from_config` accepts Kafka's names. All errors are ClientErrors.
    The error of a partition is raised by the call that would have returned its records; the next call retries.
    """

    def __init__(
        self,
        bootstrap: str | Iterable[str] = "127.0.0.1:9092",
        *,
        topics: str | Iterable[str] | None = None,
        assign: Iterable[TopicPartition] | None = None,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
        random: Random | None = None,
        **options: Any,
    ) -> None:
        # Checked here, so that the error for an unknown name has the nearest known one.
        values = field_values(ConsumerOptions, options, CONSUMER_ALIASES)
        self.options = ConsumerOptions(bootstrap=bootstrap, **values)
        if (topics is None) == (assign is None):
            raise ConfigError("expected either topics or assign")
        self.topics = _topics(topics)
        self._assigned = _partitions(assign or ())
        self._key_deserializer = key_deserializer
        self._value_deserializer = value_deserializer
        self._is_raw = key_deserializer is None and value_deserializer is None
        self._cluster = Cluster(self.options, rng=random if random is not None else Random())
        self._fetcher: Fetcher | None = None
        self._reading: PartitionState | None = None  # the partition whose decoded records getone() returns next
        self._progress: Progress | None = None
        self._group: Group | None = None
        self._offsets: GroupOffsets | None = None
        self._is_open = False
        self._stopping: asyncio.Task[None] | None = None

    @classmethod
    def from_config(cls, config: Mapping[str, Any], **more: Any) -> Consumer:
        """Creates a consumer from Kafka's option names, such as `{"bootstrap.servers": ..., "group.id": ...}`.

        `more` are the other parameters: topics or assign, deserializers. Raises ConfigError.
        """
        return cls(**field_values(ConsumerOptions, config, CONSUMER_ALIASES), **more)

    # Start and stop

    async def start(self) -> None:
        """Connects to the cluster, and starts fetching. Raises ConnectionLost if no broker is reachable."""
        if self._is_open or self._stopping is not None:
            raise ClientError("a consumer can be started only once")
        await self._cluster.start()
        options = self.options
        if options.group is not None:
            self._offsets = GroupOffsets(self._cluster, options.group, options.isolation == "read_committed")
        fetcher = Fetcher(self._cluster, options, self._restored if self._offsets is not None else None)
        progress = Progress(fetcher, options, self._offsets)
        self._fetcher, self._progress, self._is_open = fetcher, progress, True
        if not self.topics:
            fetcher.assign(self._assigned)
        elif self._offsets is None:
            fetcher.follow(frozenset(self.topics))
            self._cluster.add_listener(self._follow)
        else:
            kind = ClassicGroup if options.group_protocol == "classic" else ConsumerGroup
            self._group = progress.group = kind(self._cluster, options, self.topics, progress)
            self._group.start()

    async def stop(self) -> None:
        """Commits all returned records (with automatic commits), leaves the group, and closes.

        Calls that wait for records fail with ClientClosed. May be called again.
        """
        if self._stopping is None:
            self._is_open = False
            self._stopping = asyncio.get_running_loop().create_task(self._stop())
        await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        if self._fetcher is not None and self._progress is not None:
            self._fetcher.changed.set()
            self._progress.come_back()
            joined = self._group is None or not self._group.is_joining
            if self._offsets is not None and self.options.enable_auto_commit and joined:
                await self._progress.commit_done(min(self.options.default_api_timeout_ms / 1000, STOP_COMMIT_S))
            await self._progress.close()
            if self._group is not None:
                await self._group.close()
            await self._fetcher.close()
        await self._cluster.close()

    async def __aenter__(self) -> Consumer:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    def _open(self) -> Fetcher:
        if self._fetcher is None or not self._is_open:
            raise ClientClosed("the consumer is closed, or not started")
        return self._fetcher

    def _follow(self) -> None:
        """Assigns all current partitions of the topics."""
        if self._fetcher is None or not self._is_open:
            return
        found = [
            (name, index)
            for name in self.topics
            if (topic := self._cluster.topics.get(name)) is not None
            for index in topic.partitions
        ]
        if any(where not in self._fetcher.states for where in found):
            self._fetcher.assign([*self._fetcher.states, *found])

    # Reading

    def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        return self

    async def __anext__(self) -> ConsumerRecord:
        """Returns the next record; ends the iteration when the consumer is stopped."""
        try:
            return await self.getone()
        except ClientClosed:
            if self._stopping is not None:
                raise StopAsyncIteration from None
            raise

    async def getone(self) -> ConsumerRecord:
        """Waits for the next record and returns it."""
        fetcher, progress, group = self._open(), self._progress, self._group
        assert progress is not None
        if progress.held:
            progress.come_back()
        if group is not None and group.is_changing:
            await group.settled()
        state = self._reading
        if state is not None and state.index < len(state.records) and not state.is_paused:
            return self._given(state, state.handed_out(1))[0]
        while True:
            found = fetcher.take(1)
            if found is not None:
                self._reading, records = found
                return self._given(self._reading, records)[0]
            fetcher.changed.clear()
            await fetcher.changed.wait()
            self._open()
            if group is not None and group.is_changing:
                await group.settled()

    async def getmany(
        self, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Returns available records by partition, at most `max_records` (default `max_poll_records`).

        Waits for records if there are none; returns {} after `timeout_ms`.
        """
        fetcher, progress, group = self._open(), self._progress, self._group
        assert progress is not None
        if progress.held:
            progress.come_back()
        room = self.options.max_poll_records if max_records is None else max_records
        if room < 1:
            raise ConfigError(f"max_records must be 1 or more, not {room}")
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                while True:
                    if group is not None and group.is_changing:
                        await group.settled()
                    if found := self._taken(fetcher, room):
                        return found
                    fetcher.changed.clear()
                    await fetcher.changed.wait()
                    self._open()
        return {}

    def _taken(self, fetcher: Fetcher, room: int) -> dict[TopicPartition, list[ConsumerRecord]]:
        taken: dict[TopicPartition, list[ConsumerRecord]] = {}
        while room > 0:
            try:
                found = fetcher.take(room)
                if found is None:
                    break
                state, records = found
                records = self._given(state, records)
            except ClientError:
                if taken:  # the records read before are returned first; the next call raises the error
                    break
                raise
            room -= len(records)
            where = state.topic, state.partition
            if where in taken:
                taken[where] = taken[where] + records
            else:
                taken[where] = records
        return taken

    def _given(self, state: PartitionState, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        assert self._progress is not None
        self._progress.handed(state)
        return records if self._is_raw else self._deserialized(state, records)

    def _deserialized(self, state: PartitionState, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        read: list[ConsumerRecord] = []
        for record in records:
            key, value = record.key, record.value
            try:
                if self._key_deserializer is not None:
                    key = self._key_deserializer(key)
                if self._value_deserializer is not None:
                    value = self._value_deserializer(value)
            except Exception as error:
                state.give_back(record.offset)
                if read:
                    return read
                where = f"{record.topic}-{record.partition} at offset {record.offset}"
                raise ClientError(f"deserializer failed for the record of {where}: {error}") from error
            read.append(record._replace(key=key, value=value))
        return read

    # Positions

    def assignment(self) -> list[TopicPartition]:
        """Returns the assigned partitions."""
        return sorted(self._open().states)

    def _state(self, topic: str, partition: int) -> PartitionState:
        state = self._open().states.get((topic, partition))
        if state is None:
            raise ClientError(f"{topic}-{partition} is not assigned to this consumer")
        return state

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Sets the position of a partition. An offset out of range is reset by `offset_reset`."""
        if offset < 0:
            raise ConfigError(f"an offset must be 0 or more, not {offset}")
        self._state(topic, partition).jump(offset)
        self._open().changed.set()
        self._open().wake()

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Sets partitions (default: all) to the log start offset, which is looked up before the next read."""
        self._lose(partitions, EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Sets partitions (default: all) to the high watermark; with read_committed to the last stable offset."""
        self._lose(partitions, LATEST)

    def _lose(self, partitions: Sequence[TopicPartition], which: int) -> None:
        fetcher = self._open()
        for where in partitions or list(fetcher.states):
            self._state(*where).lose(which)
        fetcher.wake()

    async def position(self, topic: str, partition: int) -> int:
        """Returns the offset of the next record; waits for its lookup if it is unknown."""
        fetcher = self._open()
        deadline = asyncio.get_running_loop().time() + self.options.default_api_timeout_ms / 1000
        while True:
            state = self._state(topic, partition)
            if state.failure is not None and state.position < 0:
                fetcher.raise_failure(state, state.failure)
            if state.position >= 0 and state.reset is None:
                return state.position
            fetcher.changed.clear()
            try:
                async with asyncio.timeout_at(deadline):
                    await fetcher.changed.wait()
            except TimeoutError:
                raise ClientError(f"no position of {topic}-{partition} within the timeout") from None

    def pause(self, *partitions: TopicPartition) -> None:
        """Stops reading and fetching partitions until `resume`. Positions are kept."""
        for where in partitions:
            self._state(*where).is_paused = True

    def resume(self, *partitions: TopicPartition) -> None:
        """Resumes paused partitions."""
        fetcher = self._open()
        for where in partitions:
            self._state(*where).is_paused = False
        fetcher.changed.set()
        fetcher.wake()

    def paused(self) -> list[TopicPartition]:
        """Returns the paused partitions."""
        return sorted(where for where, state in self._open().states.items() if state.is_paused)

    def highwater(self, topic: str, partition: int) -> int:
        """Returns the high watermark of the last response, -1 without one."""
        return self._state(topic, partition).high_watermark

    # Committing

    async def commit(
        self, offsets: Mapping[TopicPartition, int | tuple[int, str] | OffsetAndMetadata] | None = None
    ) -> None:
        """Commits offsets (of the next record to read), by default the positions of all partitions.

        Raises KafkaError: ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID or REBALANCE_IN_PROGRESS if the partitions may be
        assigned to other members now. Raises ClientError without a group.
        """
        self._open()
        assert self._progress is not None
        parsed = None if offsets is None else read_offsets(offsets)
        await self._progress.commit(parsed, self.options.default_api_timeout_ms / 1000)

    def group_metadata(self) -> GroupMetadata:
        """Returns the group and the current member for `Producer.send_offsets_to_transaction` (KIP-447).

        To be called for each transaction: it changes with each rebalance. With `assign` it has no member, only the
        group. Raises ClientError without a group.
        """
        self._open()
        if self.options.group is None:
            raise ClientError("committed offsets need a group: none is set")
        return GroupMetadata(self.options.group, *(NOT_A_MEMBER if self._group is None else self._group.membership))

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Returns the committed offsets of the group, None without one. Raises ClientError without a group."""
        self._open()
        if self._offsets is None:
            raise ClientError("committed offsets need a group: none is set")
        return await self._offsets.fetch(_partitions(partitions), self.options.default_api_timeout_ms / 1000)

    async def _restored(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        found = await self.committed(partitions)
        return {where: committed.offset for where, committed in found.items() if committed is not None}

    # Lookups

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the log start offset of partitions. Raises NoSuchTopic, KafkaError, ConnectionLost."""
        return await self._ends(partitions, EARLIEST)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the high watermark of partitions; with read_committed the last stable offset."""
        return await self._ends(partitions, LATEST)

    async def _ends(self, partitions: Iterable[TopicPartition], which: int) -> dict[TopicPartition, int]:
        found = await self._looked_up(dict.fromkeys(_partitions(partitions), which))
        return {where: one.offset for where, one in found.items()}

    async def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, FoundOffset | None]:
        """Returns the first offset of each partition with that timestamp or a later one, None without one.

        Raises UnsupportedVersion before 0.10.1.
        """
        if any(timestamp < 0 for timestamp in timestamps_ms.values()):
            raise ConfigError("a timestamp must be 0 or more")
        found = await self._looked_up(timestamps_ms)
        return {where: one if one.offset >= 0 else None for where, one in found.items()}

    async def _looked_up(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, FoundOffset]:
        return await self._open().lookup.all(wanted, self.options.default_api_timeout_ms / 1000)


def _topics(topics: str | Iterable[Any] | None) -> list[str]:
    names: list[Any] = [topics] if isinstance(topics, str) else list(dict.fromkeys(topics or ()))
    if topics is not None and (not names or not all(isinstance(name, str) and name for name in names)):
        raise ConfigError(f"topics must be at least one name, not {topics!r}")
    return names


def _partitions(partitions: Iterable[tuple[Any, Any]]) -> list[TopicPartition]:
    found: list[TopicPartition] = []
    for each in partitions:
        topic, partition = each
        if not isinstance(topic, str) or isinstance(partition, bool) or not isinstance(partition, int) or partition < 0:
            raise ConfigError(f"a partition must be (topic, number), not {each!r}")
        found.append((topic, partition))
    return list(dict.fromkeys(found))
