"""The calls of aiokafka's admin client, whose results are responses of the protocol."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from admin_clients import Call
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

NAME = "aiokafka"
CLASS = AIOKafkaAdminClient
NOT_CALLED = {"start": "every call comes after it", "close": "every call comes before it"}
SECONDS = 20


class Running:
    """An admin client and the loop that it lives in."""

    def __init__(self, address: str) -> None:
        self._loop = asyncio.new_event_loop()

        async def made() -> AIOKafkaAdminClient:
            client = AIOKafkaAdminClient(bootstrap_servers=address, request_timeout_ms=15000)
            await client.start()
            return client

        self._client = self._loop.run_until_complete(made())

    def call(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Calls a method of the admin client, and returns or raises its result."""
        pending = asyncio.wait_for(getattr(self._client, method)(*copy.deepcopy(arguments), **options), SECONDS)
        return self._loop.run_until_complete(pending)

    def close(self) -> None:
        self._loop.run_until_complete(self._client.close())
        self._loop.close()


@contextmanager
def opened(address: str) -> Iterator[Running]:
    running = Running(address)
    try:
        yield running
    finally:
        running.close()


def call(method: str, what: str, *arguments: Any, reads: bool = False, **options: Any) -> Call:
    return Call(method, what, _made(method, arguments, options), reads)


def _made(method: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Callable[[Running], Any]:
    return lambda running: _plain(running.call(method, *arguments, **options))


def _plain(response: Any) -> Any:
    """Returns the fields of responses of the protocol, in plain values."""
    if isinstance(response, list):
        return [_plain(one) for one in response]
    return response.to_object() if hasattr(response, "to_object") else response


def topic(name: str, **configs: str) -> ConfigResource:
    named = {key.replace("_", "."): value for key, value in configs.items()}
    return ConfigResource(ConfigResourceType.TOPIC, name, named or None)


T0, NOPE = TopicPartition("t", 0), TopicPartition("nope", 0)
CALLS = [
    call("create_topics", "good", [NewTopic("t", 2, 1), NewTopic("u", 1, 1, topic_configs={"flush.ms": "7"})]),
    call("create_topics", "there already", [NewTopic("t", 2, 1)]),
    call("create_topics", "a bad name", [NewTopic("a b", 1, 1)]),
    call("create_topics", "too many replicas", [NewTopic("v", 1, 3)]),
    call("create_topics", "no partitions", [NewTopic("v", 0, 1)]),
    call("create_topics", "an unknown config", [NewTopic("v", 1, 1, topic_configs={"no.such": "1"})]),
    call("create_topics", "a bad config", [NewTopic("v", 1, 1, topic_configs={"retention.ms": "x"})]),
    # A Kafka with ZooKeeper waits for them as long as it may.
    call("create_topics", "replicas that are not there", [NewTopic("v", -1, -1, replica_assignments={0: [7]})], 2000),
    call("create_topics", "validated only", [NewTopic("v", 1, 1)], validate_only=True),
    call("create_topics", "none", []),
    call("create_topics", "twice", [NewTopic("w", 1, 1), NewTopic("w", 1, 1)]),
    call("create_partitions", "good", {"t": NewPartitions(3)}),
    call("create_partitions", "fewer", {"t": NewPartitions(1)}),
    call("create_partitions", "as many", {"t": NewPartitions(3)}),
    call("create_partitions", "of none", {"nope": NewPartitions(3)}),
    call("create_partitions", "with replicas that are not there", {"t": NewPartitions(4, [[7]])}),
    call("create_partitions", "validated only", {"t": NewPartitions(9)}, validate_only=True),
    call("list_topics", "all", reads=True),
    call("describe_topics", "all", reads=True),
    call("describe_topics", "some", ["t", "nope", "a b"], reads=True),
    call("describe_cluster", "plain", reads=True),
    call("describe_configs", "some", [topic("u"), topic("nope")], reads=True),
    call("describe_configs", "with synonyms", [topic("u", flush_ms="")], include_synonyms=True, reads=True),
    call("describe_configs", "no broker", [ConfigResource(ConfigResourceType.BROKER, "7")], reads=True),
    call("describe_configs", "a bad broker", [ConfigResource(ConfigResourceType.BROKER, "x")], reads=True),
    call("alter_configs", "good", [topic("t", flush_ms="1000")]),
    call("alter_configs", "a bad value", [topic("t", flush_ms="x")]),
    call("alter_configs", "an unknown name", [topic("t", no_such="1")]),
    call("alter_configs", "no topic", [topic("nope", flush_ms="1")]),
    call("describe_configs", "what was changed", [topic("t")], reads=True),
    call("find_coordinator", "of a group", "g", reads=True),
    call("find_coordinator", "of a transaction", "g", 1, reads=True),
    call("find_coordinator", "of nothing that there is", "g", 9, reads=True),
    call("list_consumer_groups", "all", reads=True),
    call("describe_consumer_groups", "none", ["g", ""], reads=True),
    call("describe_consumer_groups", "with operations", ["g"], include_authorized_operations=True, reads=True),
    call("list_consumer_group_offsets", "none", "g", reads=True),
    call("list_consumer_group_offsets", "some", "g", partitions=[T0, NOPE], reads=True),
    call("delete_records", "good", {T0: RecordsToDelete(0)}),
    call("delete_records", "to the end", {T0: RecordsToDelete(-1)}),
    call("delete_records", "beyond the end", {T0: RecordsToDelete(7)}),
    call("delete_records", "no topic", {NOPE: RecordsToDelete(7)}),
    call("delete_topics", "some", ["t", "nope", "u"]),
    call("delete_topics", "a bad name", ["a b", ""]),
]
