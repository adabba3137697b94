"""The decision for each topic whether it is written with idempotence (the modes of KIP-192).

Owns the decision and its inputs: the broker's versions of Produce and InitProducerId, the message format in the
metadata (only Ottla returns it), otherwise the topic's config `message.format.version`, fetched once if the client is
authorized. If the format is unknown, idempotence is tried: an error UNSUPPORTED_FOR_MESSAGE_FORMAT decides (`refuse`).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

from ...protocol.errors import ErrorCode
from ...protocol.messages.configs.describe_configs import DescribeConfigsRequest
from ...protocol.messages.records.fetch import FetchRequest
from ...protocol.messages.records.produce import ProduceRequest
from ...protocol.messages.transactions.init_producer_id import InitProducerIdRequest
from ...protocol.schema import spec
from ..net.connection import Connection
from ..net.errors import ClientError, IdempotenceUnsupported
from ..net.metadata import Topic
from .batches import magic_of

PRODUCE_WITH_PRODUCERS = 3  # 0.11
PRODUCE_WITH_LOG_START = 5  # 1.0: log_start_offset distinguishes deleted records from lost ones
FETCH_OF_2_7 = 12  # 2.7: from 3.0 on the config may have no effect (KIP-724)
TOPIC_RESOURCE = 2
FORMAT_CONFIG = "message.format.version"
_FORMAT = re.compile(r"(\d+)\.(\d+)")


def last_version(connection: Connection, request: type) -> int:
    """Returns the newest version of an API that the broker serves, -1 for none."""
    versions = connection.versions.get(spec(request).api_key)
    return -1 if versions is None else versions.last


def magic_of_config(value: str) -> int | None:
    """Returns the message format of a value of `message.format.version`, None if it is malformed."""
    found = _FORMAT.match(value)
    if found is None:
        return None
    release = (int(found[1]), int(found[2]))
    return 0 if release < (0, 10) else 1 if release < (0, 11) else 2


class Modes:
    """The decisions of one producer. `mode` is "required", "requested" or "off"; `wake` is called after a decision."""

    def __init__(self, mode: str, wake: Callable[[], None]) -> None:
        self.mode = mode
        self._wake = wake
        self._formats: dict[str, int | None] = {}  # by the topic's config; None: unknown
        self._refused: dict[str, int | None] = {}  # topics, with the format in the metadata at the refusal
        self._asking: dict[str, asyncio.Task[None]] = {}

    def decide(self, topic: Topic, connection: Connection) -> bool | None:
        """Returns whether a topic is written with idempotence; None while its config is fetched.

        Raises IdempotenceUnsupported in the mode "required".
        """
        if self.mode == "off":
            return False
        produce = last_version(connection, ProduceRequest)
        if produce < PRODUCE_WITH_PRODUCERS or last_version(connection, InitProducerIdRequest) < 0:
            return self._without(topic.name, magic_of(produce))
        if self.mode == "requested" and produce < PRODUCE_WITH_LOG_START:
            return False
        if topic.name in self._refused:
            if self._refused[topic.name] == topic.message_format:
                return self._without(topic.name, self._known_format(topic))
            del self._refused[topic.name]
        if topic.message_format is not None:
            return True if topic.message_format >= 2 else self._without(topic.name, topic.message_format)
        if topic.name not in self._formats:
            if last_version(connection, DescribeConfigsRequest) < 0:
                return True
            if topic.name not in self._asking:
                task = asyncio.get_running_loop().create_task(self._request_config(topic.name, connection))
                self._asking[topic.name] = task
                task.add_done_callback(lambda _: self._asking.pop(topic.name, None))
            return None
        found = self._formats[topic.name]
        if found is None or found >= 2 or last_version(connection, FetchRequest) >= FETCH_OF_2_7:
            return True
        return self._without(topic.name, found)

    def _without(self, topic: str, message_format: int | None) -> bool:
        if self.mode == "required":
            raise IdempotenceUnsupported(topic, message_format)
        return False

    def _known_format(self, topic: Topic) -> int | None:
        found = self._formats.get(topic.name) if topic.message_format is None else topic.message_format
        return None if found is None or found >= 2 else found

    def refuse(self, topic: Topic) -> IdempotenceUnsupported | None:
        """Stores that the broker refused the topic's message format; returns an error in the mode "required"."""
        self._refused[topic.name] = topic.message_format
        return IdempotenceUnsupported(topic.name, self._known_format(topic)) if self.mode == "required" else None

    async def _request_config(self, topic: str, connection: Connection) -> None:
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=[FORMAT_CONFIG]
        )
        try:
            response = await connection.request(DescribeConfigsRequest(resources=[resource]))
        except ClientError as error:
            # After a retriable error the config is fetched again.
            if not error.retriable:
                self._formats[topic] = None
        else:
            self._formats[topic] = _format_in(response)
        self._wake()

    def close(self) -> None:
        """Cancels the requests in flight."""
        for task in self._asking.values():
            task.cancel()


def _format_in(response: object) -> int | None:
    for result in getattr(response, "results", ()):
        if result.error_code == ErrorCode.NONE:
            for config in result.configs:
                if config.name == FORMAT_CONFIG and config.value is not None:
                    return magic_of_config(config.value)
            return 2  # releases without the config write v2 only
    return None
