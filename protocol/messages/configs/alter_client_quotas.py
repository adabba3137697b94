"""AlterClientQuotas: request and response of API key 49. KIP-546."""

from __future__ import annotations

from ...primitives import Bool, Float64, Int16, Int32, Text
from ...schema import group, message


@message(api_key=49, versions="0-1", flexible="1+")
class AlterClientQuotasRequest:
    """Sets and removes quotas of entities; a null name is the default."""

    entries: list[EntryData]
    validate_only: Bool

    @group
    class EntryData:
        entity: list[EntityData]
        ops: list[OpData]

        @group
        class EntityData:
            entity_type: Text
            entity_name: Text | None

        @group
        class OpData:
            key: Text
            value: Float64
            remove: Bool


@message(api_key=49, versions="0-1", flexible="1+")
class AlterClientQuotasResponse:
    """One result per entity."""

    throttle_time_ms: Int32 = 0
    entries: list[EntryData]

    @group
    class EntryData:
        error_code: Int16
        error_message: Text | None
        entity: list[EntityData]

        @group
        class EntityData:
            entity_type: Text
            entity_name: Text | None
