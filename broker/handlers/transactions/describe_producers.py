"""DescribeProducers v0: the producer states of partitions (KIP-664).

A partition is described once, even if requested several times, and by each of its replicas, not only by the leader.
Requires READ on each topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....protocol.acls import AclOperation
from ....protocol.errors import ErrorCode
from ....protocol.messages.transactions.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from ....storage.errors import StorageError
from ....storage.producers.producer_state import Producer
from ...context import RequestContext, handles
from ...errors import Refused, code_of, message_of
from ...metadata.topics import check_name

if TYPE_CHECKING:
    from ....storage.partition_log import PartitionLog

Topic = DescribeProducersResponse.TopicResponse
Partition = Topic.PartitionResponse
State = Partition.ProducerState

UNKNOWN = "This server does not host this topic-partition."


@handles(DescribeProducersRequest)
async def describe_producers(request: DescribeProducersRequest, context: RequestContext) -> DescribeProducersResponse:
    """Describes each partition on its own, with its producers by id."""
    wanted: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        await context.step()
        wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    topics: list[Topic] = []
    for name, indexes in wanted.items():
        partitions = await context.mapped(lambda index, name=name: _partition(name, index, context), list(indexes))
        topics.append(Topic(name=name, partitions=partitions))
    return DescribeProducersResponse(throttle_time_ms=0, topics=topics)


def _partition(name: str, index: int, context: RequestContext) -> Partition:
    try:
        producers = _log(name, index, context).producers()
    except (Refused, StorageError) as error:
        message = message_of(error) if isinstance(error, Refused) and error.message else None
        if not context.broker.profile.behaviour.producers_in_words:
            message = None
        return Partition(partition_index=index, error_code=code_of(error), error_message=message, active_producers=[])
    states = [_state(producer_id, known) for producer_id, known in sorted(producers.items())]
    return Partition(partition_index=index, error_code=0, active_producers=states)


def _log(name: str, index: int, context: RequestContext) -> PartitionLog:
    """The partition's log. As in Kafka 3.9, an invalid or unknown topic has an error message. Raises Refused."""
    topics = context.broker.topics
    if context.broker.profile.behaviour.producers_in_words:
        check_name(name)
    context.check_topic(AclOperation.READ, name)
    if topics.get(name) is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN)
    partition = topics.partition(name, index)
    if context.node_id not in partition.replicas:
        partition.check_leader(context.node_id)
    return partition.log


def _state(producer_id: int, known: Producer) -> State:
    return State(
        producer_id=producer_id,
        producer_epoch=known.epoch,
        last_sequence=known.last_sequence,
        last_timestamp=known.last_timestamp_ms,
        coordinator_epoch=known.coordinator_epoch,
        current_txn_start_offset=known.transaction_first_offset,
    )
