"""Topics, records, groups and producers."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from ....protocol.limits import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN
from .parts import (
    CONFIGS_MAX,
    Bytes,
    Count,
    Epoch,
    LeaderId,
    LogOffset,
    Model,
    PartitionIndex,
    ProducerEpoch,
    TimeMs,
    TopicName,
    doc,
    items,
    whole,
)

RECORDS_MAX = 10_000  # in one request or one response
PARTITIONS_MAX = 1000  # of a topic that is created here: its creation blocks the event loop
HEADERS_MAX = 1000
Configs = Annotated[dict[str, str], items(CONFIGS_MAX, description="configs by Kafka's names")]


class NewTopic(Model):
    """A topic to create; without a name it gets a unique one."""

    name: TopicName | UnsetType = UNSET
    partitions: Annotated[int, whole(1, PARTITIONS_MAX)] = 1
    configs: Configs | UnsetType = UNSET


class Partition(Model):
    partition: PartitionIndex
    leader: LeaderId
    leader_epoch: Epoch
    start_offset: LogOffset
    end_offset: Annotated[LogOffset, doc("the high watermark")]
    stable_offset: Annotated[LogOffset, doc("the last stable offset")]
    size_bytes: Annotated[int, whole(-1, INT64_MAX)]
    offline: Annotated[str | None, doc("why it is offline, null while it is not")]


class Topic(Model):
    name: TopicName
    id: str
    is_internal: bool
    partitions: list[Partition]
    configs: Configs


class Topics(Model):
    topics: list[Topic]


class Header(Model):
    name: str
    value: Bytes


class NewRecord(Model):
    """A record to append. Without a partition, its key chooses one as in Java's client; without a key the partitions
    are used round-robin."""

    value: Bytes
    key: Bytes | UnsetType = UNSET
    headers: Annotated[list[Header], items(HEADERS_MAX)] | UnsetType = UNSET
    partition: PartitionIndex | UnsetType = UNSET
    timestamp_ms: (
        Annotated[int, whole(0, INT64_MAX, "milliseconds since 1970; the broker's time by default")] | UnsetType
    ) = UNSET


class NewRecords(Model):
    records: Annotated[list[NewRecord], items(RECORDS_MAX, 1)]


class Offsets(Model):
    """The offset of each record, in the order of the request."""

    offsets: list[LogOffset]


class Record(Model):
    topic: TopicName
    partition: PartitionIndex
    offset: Count
    timestamp_ms: TimeMs
    key: Bytes
    value: Bytes
    headers: list[Header]


class Records(Model):
    """Committed records by partition and offset."""

    records: Annotated[list[Record], items(RECORDS_MAX)]
    more: Annotated[bool, doc("whether records after the last of these exist")]


class RecordsQuery(Model):
    partition: PartitionIndex | UnsetType = UNSET
    offset: Annotated[Count, doc("the lowest offset, in each partition")] = 0
    limit: Annotated[int, whole(1, RECORDS_MAX)] = RECORDS_MAX


class TopicPartition(Model):
    topic: str
    partition: Annotated[int, whole(INT32_MIN, INT32_MAX)]


class Member(Model):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: Annotated[int, whole(INT32_MIN, INT32_MAX)]
    topics: list[str]
    assignment: list[TopicPartition]
    epoch: Annotated[Epoch | None, doc("of a member of the consumer protocol or a share group; null otherwise")]
    regex: Annotated[str, doc("the regular expression of topics that a member subscribes to; empty without one")]
    target: Annotated[list[TopicPartition] | None, doc("the target assignment in a group of the consumer protocol")]


class SharePartition(Model):
    """The records in flight of a share partition, by state."""

    topic: str
    partition: PartitionIndex
    start_offset: Annotated[int | None, doc("the first offset that is not done; null while no member fetches")]
    end_offset: Annotated[int | None, doc("the last offset in flight; null without one")]
    available: Count
    acquired: Count
    acknowledged: Count
    archived: Annotated[Count, doc("with those that are on their way to the dead-letter queue")]
    deliveries: Annotated[Count, doc("the highest delivery count of records that may be delivered again")]


class Offset(Model):
    """A committed offset, the offsets at both ends of its log, and how many offsets the group has still to read."""

    topic: str
    partition: PartitionIndex
    offset: Annotated[int, whole(INT64_MIN, INT64_MAX)]
    leader_epoch: Epoch
    metadata: str
    lag: Annotated[Annotated[int, Meta(ge=0)] | None, doc("null for a partition that does not exist any more")]
    start_offset: Annotated[int | None, doc("the log start offset, null likewise")]
    end_offset: Annotated[int | None, doc("the high watermark, null likewise")]


class Group(Model):
    id: str
    state: str
    protocol_type: str
    protocol: str
    generation: Epoch
    leader: str | None
    members: list[Member]
    offsets: list[Offset]
    type: Annotated[str, doc("classic; or consumer or share: then generation is the epoch and protocol the assignor")]
    assignment_epoch: Annotated[Epoch | None, doc("the epoch of the assignment; null in a classic group")]
    share_partitions: Annotated[list[SharePartition], doc("of a share group")]
    lag: Annotated[Count, doc("the sum over all partitions")]


class ShareRecords(Model):
    """Records in flight with equal states, from offset `first` to `last`."""

    first: Annotated[int, whole(0, INT64_MAX)]
    last: Annotated[int, whole(0, INT64_MAX)]
    state: Annotated[str, doc("available, acquired, acknowledged, archiving or archived")]
    deliveries: Count
    ended: Annotated[str | None, doc("how the last delivery ended; null if it has not, or before a restart")]
    member: Annotated[str | None, doc("the member that has acquired them")]
    lock_expires_ms: Annotated[TimeMs | None, doc("when its lock expires")]


class ShareRecordsInFlight(Model):
    """The records of a share partition in flight."""

    start_offset: Annotated[int | None, doc("the records below are done; null while no member fetches")]
    delivery_limit: Annotated[Count, doc("after as many deliveries a record is archived")]
    records: list[ShareRecords]


class ShareRecordsQuery(Model):
    topic: TopicName
    partition: PartitionIndex


class Groups(Model):
    groups: list[Group]


class Producer(Model):
    topic: TopicName
    partition: PartitionIndex
    producer_id: Count
    producer_epoch: ProducerEpoch
    last_sequence: Epoch
    last_timestamp_ms: TimeMs
    coordinator_epoch: Epoch
    transaction_start_offset: Annotated[LogOffset, doc("-1 without an open transaction")]


class Producers(Model):
    """The producer state entries of partitions."""

    producers: list[Producer]


class ProducersQuery(Model):
    topic: TopicName | UnsetType = UNSET
