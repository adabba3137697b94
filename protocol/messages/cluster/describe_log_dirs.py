"""DescribeLogDirs: request and response of API key 35. KIP-113, KIP-827."""

from __future__ import annotations

from ...primitives import Bool, Int16, Int32, Int64, Text
from ...schema import field, group, message


@message(api_key=35, versions="0-5", flexible="2+")
class DescribeLogDirsRequest:
    """The partitions to describe; null for all."""

    topics: list[DescribableLogDirTopic] | None

    @group
    class DescribableLogDirTopic:
        topic: Text
        partitions: list[Int32]


@message(api_key=35, versions="0-5", flexible="2+")
class DescribeLogDirsResponse:
    """Directories with their partitions and sizes. v4 adds total and usable bytes (KIP-827)."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = field("3+", default=0, ignorable=True)
    results: list[DescribeLogDirsResult]

    @group
    class DescribeLogDirsResult:
        error_code: Int16
        log_dir: Text
        topics: list[DescribeLogDirsTopic]
        total_bytes: Int64 = field("4+", default=-1, ignorable=True)
        usable_bytes: Int64 = field("4+", default=-1, ignorable=True)
        is_cordoned: Bool = field("5+", default=False, ignorable=True)

        @group
        class DescribeLogDirsTopic:
            name: Text
            partitions: list[DescribeLogDirsPartition]

            @group
            class DescribeLogDirsPartition:
                partition_index: Int32
                partition_size: Int64
                offset_lag: Int64
                is_future_key: Bool
