"""DescribeLogDirs v0-v5: data directories with their partitions and sizes (KIP-113, KIP-827).

A directory that has failed is in error (KIP-112); which partitions are its is not told. A partition that moves from one
to another is listed in both, with how far the copy is behind.
"""

from __future__ import annotations

from ...protocol.acls import AclOperation, ResourceType
from ...protocol.errors import ErrorCode
from ...protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from ..context import RequestContext, handles
from ..log_dirs import UnusableDir

Directory = DescribeLogDirsResponse.DescribeLogDirsResult
TopicSizes = Directory.DescribeLogDirsTopic
PartitionSize = TopicSizes.DescribeLogDirsPartition


@handles(DescribeLogDirsRequest)
async def describe_log_dirs(request: DescribeLogDirsRequest, context: RequestContext) -> DescribeLogDirsResponse:
    """All partitions, or those asked for; unknown ones are left out, as in Kafka. Up to v2 who may not describe the
    cluster is told of no directory."""
    if not context.allowed(AclOperation.DESCRIBE, ResourceType.CLUSTER):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, results=[])
    wanted = (
        None
        if request.topics is None
        else {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    )
    results = []
    for directory in context.broker.logs.all:
        if directory.failure is not None or isinstance(directory, UnusableDir):
            results.append(Directory(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=directory.path, topics=[]))
            continue
        topics: dict[str, list[PartitionSize]] = {}
        for topic in context.broker.topics:
            for partition in topic.online_partitions():
                if context.node_id not in partition.replicas:
                    continue
                if (wanted is None or (topic.name, partition.index) in wanted) and directory.holds(partition.log):
                    size = PartitionSize(
                        partition_index=partition.index,
                        partition_size=partition.log.size_bytes,
                        offset_lag=0,
                        is_future_key=False,
                    )
                    topics.setdefault(topic.name, []).append(size)
        for partition, future in context.broker.moves.of(directory):
            name, index = partition.topic, partition.index
            if context.node_id in partition.replicas and (wanted is None or (name, index) in wanted):
                size = PartitionSize(
                    partition_index=index,
                    partition_size=future.size_bytes,
                    offset_lag=future.lag(partition.log),
                    is_future_key=True,
                )
                topics.setdefault(name, []).append(size)
        total_bytes, usable_bytes = directory.volume_bytes()
        results.append(
            Directory(
                error_code=0,
                log_dir=str(directory.path),
                topics=[TopicSizes(name=name, partitions=sizes) for name, sizes in topics.items()],
                total_bytes=total_bytes,
                usable_bytes=usable_bytes,
            )
        )
    return DescribeLogDirsResponse(results=results)
