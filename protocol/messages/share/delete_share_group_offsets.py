"""DeleteShareGroupOffsets: request and response of API key 92. KIP-932."""

from __future__ import annotations

from ...primitives import Int16, Int32, Text, Uuid
from ...schema import group, message


@message(api_key=92, versions="0", flexible="0+")
class DeleteShareGroupOffsetsRequest:
    group_id: Text
    topics: list[DeleteShareGroupOffsetsRequestTopic]

    @group
    class DeleteShareGroupOffsetsRequestTopic:
        topic_name: Text


@message(api_key=92, versions="0", flexible="0+")
class DeleteShareGroupOffsetsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Text | None = None
    responses: list[DeleteShareGroupOffsetsResponseTopic]

    @group
    class DeleteShareGroupOffsetsResponseTopic:
        topic_name: Text
        topic_id: Uuid
        error_code: Int16 = 0
        error_message: Text | None = None
