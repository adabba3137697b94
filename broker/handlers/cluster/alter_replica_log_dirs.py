"""AlterReplicaLogDirs v0-v2: moves partitions to another log directory of the broker (KIP-113).

The response means that a move has started; DescribeLogDirs reports its progress.
"""

from __future__ import annotations

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.messages.cluster.alter_replica_log_dirs import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from ....storage.future_log import NAME_MAX, future_name
from ...context import RequestContext, handles
from ...errors import Refused, code_of
from ...replica.log_dirs import LogDir, LogDirs

TopicResult = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
Result = TopicResult.AlterReplicaLogDirPartitionResult


PARTITION_ENTRIES = 2  # entries of a cooperative step for each partition
LISTED_PER_ENTRY = 20


@handles(AlterReplicaLogDirsRequest)
async def alter_replica_log_dirs(
    request: AlterReplicaLogDirsRequest, context: RequestContext
) -> AlterReplicaLogDirsResponse:
    """Handles each partition on its own; the last of several directories for one partition counts."""
    if not context.allowed(AclOperation.ALTER, ResourceType.CLUSTER):
        return await _refused(request, context)
    wanted: dict[tuple[str, int], str] = {}
    for requested in request.dirs:
        for topic in requested.topics:
            if context.is_due(1 + len(topic.partitions) // LISTED_PER_ENTRY):
                await context.next_step()
            wanted |= {(topic.name, index): requested.path for index in topic.partitions}
    results: dict[str, TopicResult] = {}
    for (name, index), path in wanted.items():
        if context.is_due(PARTITION_ENTRIES):
            await context.next_step()
        try:
            _move(name, index, path, context)
            code = ErrorCode.NONE
        except Exception as error:
            code = code_of(error)
        result = results.setdefault(name, TopicResult(topic_name=name, partitions=[]))
        result.partitions.append(Result(partition_index=index, error_code=code))
    return AlterReplicaLogDirsResponse(results=list(results.values()))


async def _refused(request: AlterReplicaLogDirsRequest, context: RequestContext) -> AlterReplicaLogDirsResponse:
    """Returns the response to a client without the right: as in Kafka, all that was requested, as it was."""
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    results: list[TopicResult] = []
    for topic in (topic for requested in request.dirs for topic in requested.topics):
        if context.is_due(1 + len(topic.partitions) // LISTED_PER_ENTRY):
            await context.next_step()
        partitions = [Result(partition_index=index, error_code=code) for index in topic.partitions]
        results.append(TopicResult(topic_name=topic.name, partitions=partitions))
    return AlterReplicaLogDirsResponse(results=results)


def _move(name: str, index: int, path: str, context: RequestContext) -> None:
    topics, logs = context.broker.topics, context.broker.logs
    if len(future_name(name, index)) > NAME_MAX:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION)
    log_dir = _directory(path, logs)
    if logs.is_cordoned(log_dir):
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT)
    if not topics.has_partition(name, index):
        logs.prefer(name, index, log_dir)
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    partition = topics.partition(name, index)
    if context.node_id not in partition.replicas:
        raise Refused(ErrorCode.REPLICA_NOT_AVAILABLE)
    if partition.offline is not None:
        raise Refused(ErrorCode.KAFKA_STORAGE_ERROR)
    context.broker.moves.move(partition, log_dir)


def _directory(path: str, logs: LogDirs) -> LogDir:
    found = next((log_dir for log_dir in logs.all if log_dir.path == path), None)
    if found is None:
        raise Refused(ErrorCode.LOG_DIR_NOT_FOUND)
    if not isinstance(found, LogDir) or found.failure is not None:
        raise Refused(ErrorCode.KAFKA_STORAGE_ERROR)
    return found
