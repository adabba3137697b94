"""Log directories (KIP-113): DescribeLogDirs v0-v5 lists them with their partitions and sizes (KIP-827),
AlterReplicaLogDirs v0-v2 moves partitions to another one of the broker.

A failed directory has an error and no partitions (KIP-112). The response to AlterReplicaLogDirs means that a move has
started; meanwhile the partition is listed in both directories, with the lag of the copy.
"""

from __future__ import annotations

import os

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.messages.cluster.alter_replica_log_dirs import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from ....protocol.messages.cluster.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from ....storage.format.file_names import FOLDER_NAME_MAX
from ....storage.future_log import future_name
from ....storage.log_dir.directory import DataDirectory
from ...context import RequestContext, handles
from ...errors import Refused, code_of
from ...replica.log_dirs import LogDirs, UnusableDir

Directory = DescribeLogDirsResponse.DescribeLogDirsResult
TopicSizes = Directory.DescribeLogDirsTopic
PartitionSize = TopicSizes.DescribeLogDirsPartition
Moved = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
MovedPartition = Moved.AlterReplicaLogDirPartitionResult

LISTED_PER_ENTRY = 20  # named partitions in the time of one entry of a cooperative step
PARTITION_ENTRIES = 2  # entries of a cooperative step for each partition


@handles(DescribeLogDirsRequest)
async def describe_log_dirs(request: DescribeLogDirsRequest, context: RequestContext) -> DescribeLogDirsResponse:
    """Lists all partitions or the requested ones; unknown ones are left out, as in Kafka. Up to v2 a client without
    DESCRIBE on the cluster gets no directory.
    """
    if not context.allowed(AclOperation.DESCRIBE, ResourceType.CLUSTER):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, results=[])
    named: set[tuple[str, int]] = set()
    for topic in request.topics or ():
        await context.step(1 + len(topic.partitions) // LISTED_PER_ENTRY)
        named.update((topic.topic, index) for index in topic.partitions)
    wanted = None if request.topics is None else named
    results: list[Directory] = []
    for directory in context.broker.logs.all:
        if directory.failure is not None or isinstance(directory, UnusableDir):
            results.append(Directory(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=directory.path, topics=[]))
            continue
        topics = await _sizes(directory, wanted, context)
        total_bytes, usable_bytes = _volume_bytes(directory.path)
        results.append(
            Directory(
                error_code=0,
                log_dir=str(directory.path),
                topics=topics,
                total_bytes=total_bytes,
                usable_bytes=usable_bytes,
                is_cordoned=context.broker.logs.is_cordoned(directory),
            )
        )
    return DescribeLogDirsResponse(results=results)


def _volume_bytes(path: str) -> tuple[int, int]:
    """Returns (all, usable) bytes of the file system of a path; -1 if the system does not report them."""
    try:
        found = os.statvfs(path)
    except (OSError, AttributeError):
        return -1, -1
    return found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail


async def _sizes(
    directory: DataDirectory, wanted: set[tuple[str, int]] | None, context: RequestContext
) -> list[TopicSizes]:
    """The requested partitions of a directory, then the copies of partitions that move to it."""
    broker = context.broker
    listed = [
        (partition, 0, partition.log.size_bytes, False)
        for topic in broker.topics
        for partition in topic.online_partitions()
        if directory.holds(partition.log)
    ]
    listed += [
        (partition, future.lag(partition.log), future.size_bytes, True)
        for partition, future in broker.moves.of(directory)
    ]
    topics: dict[str, list[PartitionSize]] = {}
    for partition, lag, size_bytes, is_copy in listed:
        await context.step()
        if context.node_id in partition.replicas:
            sizes = topics.setdefault(partition.topic, [])
            if wanted is None or (partition.topic, partition.index) in wanted:
                sizes.append(
                    PartitionSize(
                        partition_index=partition.index,
                        partition_size=size_bytes,
                        offset_lag=lag,
                        is_future_key=is_copy,
                    )
                )
    leaves_out = broker.profile.behaviour.log_dirs_of_requested_topics
    return [TopicSizes(name=name, partitions=sizes) for name, sizes in topics.items() if sizes or not leaves_out]


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
            await context.step(1 + len(topic.partitions) // LISTED_PER_ENTRY)
            wanted |= {(topic.name, index): requested.path for index in topic.partitions}
    results: dict[str, Moved] = {}
    for (name, index), path in wanted.items():
        await context.step(PARTITION_ENTRIES)
        try:
            _move(name, index, path, context)
            code = ErrorCode.NONE
        except Exception as error:
            code = code_of(error)
        result = results.setdefault(name, Moved(topic_name=name, partitions=[]))
        result.partitions.append(MovedPartition(partition_index=index, error_code=code))
    return AlterReplicaLogDirsResponse(results=list(results.values()))


async def _refused(request: AlterReplicaLogDirsRequest, context: RequestContext) -> AlterReplicaLogDirsResponse:
    """Returns the response to a client without the right: as in Kafka, all that was requested, as it was."""
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    results: list[Moved] = []
    for topic in (topic for requested in request.dirs for topic in requested.topics):
        await context.step(1 + len(topic.partitions) // LISTED_PER_ENTRY)
        partitions = [MovedPartition(partition_index=index, error_code=code) for index in topic.partitions]
        results.append(Moved(topic_name=topic.name, partitions=partitions))
    return AlterReplicaLogDirsResponse(results=results)


def _move(name: str, index: int, path: str, context: RequestContext) -> None:
    topics, logs = context.broker.topics, context.broker.logs
    if len(future_name(name, index)) > FOLDER_NAME_MAX:
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


def _directory(path: str, logs: LogDirs) -> DataDirectory:
    found = next((log_dir for log_dir in logs.all if log_dir.path == path), None)
    if found is None:
        raise Refused(ErrorCode.LOG_DIR_NOT_FOUND)
    if not isinstance(found, DataDirectory) or found.failure is not None:
        raise Refused(ErrorCode.KAFKA_STORAGE_ERROR)
    return found
