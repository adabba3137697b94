"""The committed offsets of a group: OffsetCommit and OffsetFetch in all their versions.

Owns both requests and their retries. The caller passes the member id and generation on whose behalf it commits.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

from ...protocol.errors import ErrorCode
from ...protocol.messages.groups.offset_commit import OffsetCommitRequest
from ...protocol.messages.groups.offset_fetch import OffsetFetchRequest
from ...protocol.named import NamedTuple
from ...protocol.primitives import ZERO_UUID
from ..net.cluster import Cluster
from ..net.connection import Connection
from ..net.errors import ClientError, ConfigError, ConnectionLost, KafkaError
from ..net.metadata import by_topic
from ..net.retry import retry
from .list_offsets import TopicPartition

T = TypeVar("T")

COMMIT_WITHOUT_IDS, FETCH_WITHOUT_IDS = 9, 9
FETCH_OF_GROUPS, FETCH_STABLE = 8, 7
STATIC_SINCE = 7
MOVED = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT)


class OffsetAndMetadata(NamedTuple):
    """A committed offset, which is that of the next record to read. `leader_epoch` is -1 if unknown."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class Membership(NamedTuple):
    """The member on whose behalf an offset is committed."""

    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


NOT_A_MEMBER = Membership()


class GroupMetadata(NamedTuple):
    """The group and member on whose behalf a producer commits offsets in a transaction (KIP-447).

    The commit is refused if the member is no longer part of that generation. A group without a member is not fenced.
    """

    group: str
    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


def read_offsets(
    offsets: Mapping[TopicPartition, int | tuple[int, str] | OffsetAndMetadata],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Parses the offsets of an application. Raises ConfigError."""
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    for where, offset in offsets.items():
        parsed = OffsetAndMetadata(offset) if isinstance(offset, int) else OffsetAndMetadata._make((*offset, -1)[:3])
        if isinstance(parsed.offset, bool) or parsed.offset < 0:
            raise ConfigError(f"an offset must be 0 or more, not {parsed.offset!r}")
        found[where] = parsed
    return found


def commit_topics(
    topic_class: Any,
    partition_class: Any,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    ids: Mapping[str, bytes] = {},
) -> list[Any]:
    """Returns the topics of an OffsetCommit or a TxnOffsetCommit; `ids` are topic ids by name."""
    parts: dict[str, list[Any]] = {}
    for (topic, index), offset in offsets.items():
        one = partition_class(
            partition_index=index,
            committed_offset=offset.offset,
            committed_leader_epoch=offset.leader_epoch,
            committed_metadata=offset.metadata,
        )
        parts.setdefault(topic, []).append(one)
    return [topic_class(name=name, topic_id=ids.get(name, ZERO_UUID), partitions=some) for name, some in parts.items()]


def fetch_request(
    group: str,
    partitions: Iterable[TopicPartition] | None,
    version: int,
    *,
    require_stable: bool,
    ids: Mapping[str, bytes] = {},
) -> OffsetFetchRequest:
    """Returns the OffsetFetch for partitions, None for all; `ids` are topic ids by name."""
    stable = require_stable and version >= FETCH_STABLE
    wanted = by_topic(partitions or ()).items()
    if version < FETCH_OF_GROUPS:
        cls = OffsetFetchRequest.OffsetFetchRequestTopic
        some = [cls(name=name, partition_indexes=numbers) for name, numbers in wanted]
        return OffsetFetchRequest(group_id=group, topics=None if partitions is None else some, require_stable=stable)
    group_class = OffsetFetchRequest.OffsetFetchRequestGroup
    topics = [
        group_class.OffsetFetchRequestTopics(name=name, topic_id=ids.get(name, ZERO_UUID), partition_indexes=numbers)
        for name, numbers in wanted
    ]
    one = group_class(group_id=group, topics=None if partitions is None else topics)
    return OffsetFetchRequest(groups=[one], require_stable=stable)


class GroupOffsets:
    """The committed offsets of one group. `stable_only` waits for offsets in open transactions (KIP-447)."""

    def __init__(self, cluster: Cluster, group: str, stable_only: bool) -> None:
        self._cluster = cluster
        self._group = group
        self._stable_only = stable_only

    async def _retried(self, send: Callable[[Connection], Awaitable[T]], timeout_s: float) -> T:
        """Returns the result of `send(connection)` at the coordinator, retried. Raises KafkaError, ConnectionLost."""

        async def attempt() -> T:
            return await send(await self._cluster.coordinator(self._group))

        def failed(error: ClientError) -> None:
            if isinstance(error, ConnectionLost) or (isinstance(error, KafkaError) and error.code in MOVED):
                self._cluster.expire_coordinator(self._group)

        text = "no response of the coordinator within the timeout"
        late = partial(KafkaError, ErrorCode.REQUEST_TIMED_OUT, text)
        return await retry(attempt, self._cluster.retry_backoff_s, timeout_s, late=late, on_failure=failed)

    # Committing

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], membership: Membership, timeout_s: float
    ) -> None:
        """Commits offsets. Raises KafkaError; another generation is refused with error 22, 25, 27 or 82."""
        if offsets:
            await self._retried(lambda connection: self._commit(connection, offsets, membership), timeout_s)

    async def _commit(
        self, connection: Connection, offsets: Mapping[TopicPartition, OffsetAndMetadata], membership: Membership
    ) -> None:
        ids = self._cluster.topic_ids(by_topic(offsets))
        version = connection.version_of(OffsetCommitRequest, COMMIT_WITHOUT_IDS if ZERO_UUID in ids.values() else None)
        topic_class = OffsetCommitRequest.OffsetCommitRequestTopic
        request = OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=membership.generation,
            member_id=membership.member_id,
            group_instance_id=membership.instance_id if version >= STATIC_SINCE else None,
            topics=commit_topics(topic_class, topic_class.OffsetCommitRequestPartition, offsets, ids),
        )
        response = await connection.request(request, version)
        for topic in response.topics:
            for one in topic.partitions:
                if one.error_code:
                    name = topic.name or next((n for n in ids if ids[n] == topic.topic_id), "")
                    raise KafkaError(one.error_code, f"commit of {name}-{one.partition_index}")

    # Fetching

    async def fetch(
        self, partitions: Iterable[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Fetches committed offsets, None without one. Raises KafkaError, ConnectionLost."""
        wanted = list(partitions)
        return await self._retried(lambda connection: self._fetch(connection, wanted), timeout_s) if wanted else {}

    async def _fetch(
        self, connection: Connection, wanted: list[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        ids = self._cluster.topic_ids(by_topic(wanted))
        version = connection.version_of(OffsetFetchRequest, FETCH_WITHOUT_IDS if ZERO_UUID in ids.values() else None)
        request = fetch_request(self._group, wanted, version, require_stable=self._stable_only, ids=ids)
        response = await connection.request(request, version)
        group = response.groups[0] if version >= FETCH_OF_GROUPS and response.groups else response
        if group.error_code:
            raise KafkaError(group.error_code, f"committed offsets of group {self._group!r}")
        names = {topic_id: name for name, topic_id in ids.items()} if version > FETCH_WITHOUT_IDS else {}
        found: dict[TopicPartition, OffsetAndMetadata | None] = dict.fromkeys(wanted)
        for topic in group.topics:
            name = names.get(topic.topic_id, "") if names else topic.name
            for one in topic.partitions:
                code = one.error_code
                if code and not (version == 0 and code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                    raise KafkaError(code, f"committed offset of {name}-{one.partition_index}")
                if not code and one.committed_offset >= 0:
                    found[name, one.partition_index] = OffsetAndMetadata(
                        one.committed_offset, one.metadata or "", one.committed_leader_epoch
                    )
        return found
