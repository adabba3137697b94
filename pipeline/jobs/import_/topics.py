"""The topics that records are brought to: made where they are not there, and wide enough.

Owns two questions to the brokers. Raises ReadError.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from ....client.admin.admin import Admin
from ....client.admin.types import NewTopic
from ....client.net.errors import ClientError, KafkaError, UnsupportedVersion
from ....protocol.errors import ErrorCode
from ....protocol.limits import INT64_MAX
from ...backend import ReadError
from ...readers.wire.connection import addresses
from ...readers.wire.event_loop import loop_here
from ...sink.options import SinkOptions

KEPT: Mapping[str, str | None] = {"retention.ms": "-1"}
"""The configs of a topic that is made: records that are old already must not be deleted for their age."""

ANY_TIME: Mapping[str, str | None] = {"message.timestamp.after.max.ms": str(INT64_MAX)}
"""And since Kafka 3.6, where that is said so: nor be refused for a time to come."""

T = TypeVar("T")


def _run(options: SinkOptions, work: Any) -> Any:
    client = options.client

    async def done() -> Any:
        async with Admin(
            client.bootstrap,
            request_timeout_ms=client.request_timeout_ms,
            default_api_timeout_ms=min(client.default_api_timeout_ms, client.max_block_ms),
            retry_backoff_ms=client.retry_backoff_ms,
            retry_backoff_max_ms=client.retry_backoff_max_ms,
        ) as admin:
            return await work(admin)

    loop = loop_here()
    try:
        return loop.run(_told(options, done()))
    finally:
        loop.close()


async def _told(options: SinkOptions, work: Coroutine[Any, Any, T]) -> T:
    try:
        return await work
    except ClientError as error:
        raise ReadError(f"the brokers at {addresses(options.client)} cannot be asked: {error}") from error


def counts(options: SinkOptions, names: list[str]) -> dict[str, int]:
    """How many partitions those of the topics have that are there. ReadError."""

    async def ask(admin: Admin) -> dict[str, int]:
        found = await admin.describe_topics(names)
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for one in found.values():
            if isinstance(one, ClientError) and not (isinstance(one, KafkaError) and one.code == missing):
                raise one
        return {name: len(one.partitions) for name, one in found.items() if not isinstance(one, ClientError)}

    return _run(options, ask) if names else {}


def ensure(options: SinkOptions, wanted: Mapping[str, int]) -> dict[str, int]:
    """Makes the topics that are not there, with so many partitions; how many each has. One that has fewer is a
    ReadError."""
    there = counts(options, sorted(wanted))
    check_wide(there, wanted)
    missing = {name: count for name, count in wanted.items() if name not in there}

    async def make(admin: Admin) -> None:
        left = dict(missing)
        for replication, configs in ((-1, {**KEPT, **ANY_TIME}), (-1, KEPT), (1, KEPT)):
            asked = [NewTopic(name, max(1, count), replication, configs=configs) for name, count in left.items()]
            answers = await admin.create_topics(asked)
            failed = {name: told for name, told in answers.items() if isinstance(told, ClientError)}
            left = {name: left[name] for name, told in failed.items() if not _exists(told)}
            if not left:
                return
            if replication > 0 or not all(_is_older(failed[name]) for name in left):
                raise failed[min(left)]

    if missing:
        _run(options, make)
    return {**there, **{name: max(1, count) for name, count in missing.items()}}


def check_wide(there: Mapping[str, int], wanted: Mapping[str, int]) -> None:
    """Raises ReadError for a topic that has fewer partitions than records are of."""
    for name, count in there.items():
        if count < wanted[name]:
            raise ReadError(f"topic {name} has {count} partitions, where records are of {wanted[name]}")


def _is_older(error: ClientError) -> bool:
    """Whether a broker lacks what was asked for: before 2.4 the default of a count, or a config."""
    lacks = ErrorCode.INVALID_CONFIG
    return isinstance(error, UnsupportedVersion) or (isinstance(error, KafkaError) and error.code == lacks)


def _exists(error: ClientError) -> bool:
    """A try whose answer was lost may have made it."""
    return isinstance(error, KafkaError) and error.code == ErrorCode.TOPIC_ALREADY_EXISTS
