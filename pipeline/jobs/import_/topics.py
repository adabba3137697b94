"""The target topics: created if missing, and checked for their number of partitions.

Owns two calls to the brokers. Raises ReadError.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from ....client.admin.calls import Calls
from ....client.admin.topics import TopicCalls
from ....client.admin.types import NewTopic
from ....client.net.cluster import Cluster
from ....client.net.errors import ClientError, KafkaError, UnsupportedVersion
from ....protocol.errors import ErrorCode
from ....protocol.limits import INT64_MAX
from ...backend import ReadError
from ...readers.wire.connection import ClusterCalls
from ...sink.options import SinkOptions

T = TypeVar("T")

KEPT: Mapping[str, str | None] = {"retention.ms": "-1"}
"""The configs of a created topic: old records must not be deleted by retention,"""

ANY_TIME: Mapping[str, str | None] = {"message.timestamp.after.max.ms": str(INT64_MAX)}
"""and, with Kafka 3.6 or later, not be refused for a future timestamp."""


class _Topics(TopicCalls):
    def __init__(self, cluster: Cluster) -> None:
        self._calls = Calls(cluster)


def _run(options: SinkOptions, work: Callable[[_Topics], Coroutine[Any, Any, T]]) -> T:
    with ClusterCalls(options.client) as calls:
        return calls.read("the request failed", lambda cluster: work(_Topics(cluster)))


def counts(options: SinkOptions, names: list[str]) -> dict[str, int]:
    """Returns the number of partitions of each existing topic. Raises ReadError."""

    async def describe(topics: _Topics) -> dict[str, int]:
        found = await topics.describe_topics(names)
        for one in found.values():
            if isinstance(one, ClientError) and not _has(one, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                raise one
        return {name: len(one.partitions) for name, one in found.items() if not isinstance(one, ClientError)}

    return _run(options, describe) if names else {}


def ensure(options: SinkOptions, wanted: Mapping[str, int]) -> dict[str, int]:
    """Creates the missing topics with these numbers of partitions, and returns the number of each. Raises ReadError for
    a topic with fewer."""
    there = counts(options, sorted(wanted))
    check_wide(there, wanted)
    missing = {name: count for name, count in wanted.items() if name not in there}

    async def make(topics: _Topics) -> None:
        left = dict(missing)
        for replication, configs in ((-1, {**KEPT, **ANY_TIME}), (-1, KEPT), (1, KEPT)):
            new_topics = [NewTopic(name, max(1, count), replication, configs=configs) for name, count in left.items()]
            results = await topics.create_topics(new_topics)
            failed = {name: result for name, result in results.items() if isinstance(result, ClientError)}
            # An earlier attempt whose response was lost may have created it.
            left = {name: left[name] for name, one in failed.items() if not _has(one, ErrorCode.TOPIC_ALREADY_EXISTS)}
            if not left:
                return
            # A broker may lack the default replication factor (before 2.4), or a config.
            errors = [failed[name] for name in left]
            lacks = [_has(one, ErrorCode.INVALID_CONFIG) or isinstance(one, UnsupportedVersion) for one in errors]
            if replication > 0 or not all(lacks):
                raise failed[min(left)]

    if missing:
        _run(options, make)
    return {**there, **{name: max(1, count) for name, count in missing.items()}}


def check_wide(there: Mapping[str, int], wanted: Mapping[str, int]) -> None:
    """Raises ReadError for a topic with fewer partitions than its records need."""
    for name, count in there.items():
        if count < wanted[name]:
            raise ReadError(f"topic {name} has {count} partitions, but its records need {wanted[name]}")


def _has(error: ClientError, code: ErrorCode) -> bool:
    return isinstance(error, KafkaError) and error.code == code
