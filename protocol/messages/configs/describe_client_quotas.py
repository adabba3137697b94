"""DescribeClientQuotas: request and response of API key 48. KIP-546."""

from __future__ import annotations

from ...primitives import Bool, Float64, Int8, Int16, Int32, Text
from ...schema import group, message


@message(api_key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasRequest:
    """Selects entities: one component per entity type. `match_type` is 0 for this name, 1 for the default, 2 for
    any."""

    components: list[ComponentData]
    strict: Bool

    @group
    class ComponentData:
        entity_type: Text
        match_type: Int8
        match: Text | None


@message(api_key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasResponse:
    """The quotas of each matching entity; a null name is the default."""

    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: Text | None
    entries: list[EntryData] | None

    @group
    class EntryData:
        entity: list[EntityData]
        values: list[ValueData]

        @group
        class EntityData:
            entity_type: Text
            entity_name: Text | None

        @group
        class ValueData:
            key: Text
            value: Float64
