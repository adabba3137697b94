"""DescribeLogDirs v0-v5: log directories with their partitions and sizes (KIP-113, KIP-827).

A failed directory has an error and no partitions (KIP-112). A partition that moves is listed in both directories, with
the lag of the copy.
"""

from __future__ import annotations

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.messages.cluster.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from ...context import RequestContext, handles
from ...replica.log_dirs import LogDir, UnusableDir

Directory = DescribeLogDirsResponse.DescribeLogDirsResult
TopicSizes = Directory.DescribeLogDirsTopic
PartitionSize = TopicSizes.DescribeLogDirsPartition


LISTED_PER_ENTRY = 20  # named partitions in the time of one entry of a cooperative step


@handles(DescribeLogDirsRequest)
async def describe_log_dirs(request: DescribeLogDirsRequest, context: RequestContext) -> DescribeLogDirsResponse:
    """Lists all partitions or the requested ones; unknown ones are left out, as in Kafka. Up to v2 a client without
    DESCRIBE on the cluster gets no directory.
    """
    if not context.allowed(AclOperation.DESCRIBE, ResourceType.CLUSTER):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, results=[])
    named: set[tuple[str, int]] = set()
    for topic in request.topics or ():
        if context.is_due(1 + len(topic.partitions) // LISTED_PER_ENTRY):
            await context.next_step()
        named.update((topic.topic, index) for index in topic.partitions)
    wanted = None if request.topics is None else named
    results: list[Directory] = []
    for directory in context.broker.logs.all:
        if directory.failure is not None or isinstance(directory, UnusableDir):
            results.append(Directory(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=directory.path, topics=[]))
            continue
        topics = await _sizes(directory, wanted, context)
        total_bytes, usable_bytes = directory.volume_bytes()
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


async def _sizes(directory: LogDir, wanted: set[tuple[str, int]] | None, context: RequestContext) -> list[TopicSizes]:
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
        if context.is_due():
            await context.next_step()
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
