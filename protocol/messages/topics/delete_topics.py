"""DeleteTopics: request and response of API key 20. KIP-4, KIP-516."""

from __future__ import annotations

from ...primitives import ZERO_UUID, Int16, Int32, Text, Uuid
from ...schema import field, group, message


@message(api_key=20, versions="0-6", flexible="4+")
class DeleteTopicsRequest:
    """v6 deletes by name or topic id (KIP-516)."""

    topics: list[DeleteTopicState] = field("6+", default=list)
    topic_names: list[Text] = field("0-5", default=list, ignorable=True)
    timeout_ms: Int32

    @group
    class DeleteTopicState:
        name: Text | None = None
        topic_id: Uuid


@message(api_key=20, versions="0-6", flexible="4+")
class DeleteTopicsResponse:
    """v5 adds error messages, v6 topic ids."""

    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    responses: list[DeletableTopicResult]

    @group
    class DeletableTopicResult:
        name: Text | None = field(nullable="6+")
        topic_id: Uuid = field("6+", default=ZERO_UUID, ignorable=True)
        error_code: Int16
        error_message: Text | None = field("5+", default=None, ignorable=True)
