"""AlterReplicaLogDirs: request and response of API key 34. KIP-113."""

from __future__ import annotations

from ...primitives import Int16, Int32, Text
from ...schema import group, message


@message(api_key=34, versions="0-2", flexible="2+")
class AlterReplicaLogDirsRequest:
    """Moves partitions to other data directories of the broker."""

    dirs: list[AlterReplicaLogDir]

    @group
    class AlterReplicaLogDir:
        path: Text
        topics: list[AlterReplicaLogDirTopic]

        @group
        class AlterReplicaLogDirTopic:
            name: Text
            partitions: list[Int32]


@message(api_key=34, versions="0-2", flexible="2+")
class AlterReplicaLogDirsResponse:
    """One error per partition; NONE if its move has begun."""

    throttle_time_ms: Int32 = 0
    results: list[AlterReplicaLogDirTopicResult]

    @group
    class AlterReplicaLogDirTopicResult:
        topic_name: Text
        partitions: list[AlterReplicaLogDirPartitionResult]

        @group
        class AlterReplicaLogDirPartitionResult:
            partition_index: Int32
            error_code: Int16
