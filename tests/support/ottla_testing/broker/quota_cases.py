"""Cases of `test_apis.py` for quotas, and requests of quota tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.protocol.messages.configs.alter_client_quotas import AlterClientQuotasRequest
from ottla.protocol.messages.configs.describe_client_quotas import DescribeClientQuotasRequest
from ottla_testing.broker.api_cases import World, case
from ottla_testing.broker.harness import Client

KEYS = {48, 49}
EXACT, DEFAULT, ANY = 0, 1, 2


def entry(entity: Mapping[str, str | None], quotas: Mapping[str, float | None]) -> AlterClientQuotasRequest.EntryData:
    """A change of one entity; None removes a quota."""
    kind = AlterClientQuotasRequest.EntryData
    return kind(
        entity=[kind.EntityData(entity_type=type, entity_name=name) for type, name in entity.items()],
        ops=[
            kind.OpData(key=key, value=0.0 if value is None else value, remove=value is None)
            for key, value in quotas.items()
        ],
    )


def altering(*entries: AlterClientQuotasRequest.EntryData, validate_only: bool = False) -> AlterClientQuotasRequest:
    return AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)


def describing(*components: tuple[str, int, str | None], strict: bool = False) -> DescribeClientQuotasRequest:
    requested = DescribeClientQuotasRequest.ComponentData
    return DescribeClientQuotasRequest(
        components=[requested(entity_type=kind, match_type=how, match=match) for kind, how, match in components],
        strict=strict,
    )


def described(response: Any) -> list[tuple[dict[str, str | None], dict[str, float]]]:
    """Returns (entity, quotas) of each entry."""
    assert response.error_code == 0, response.error_message
    return [
        (
            {part.entity_type: part.entity_name for part in one.entity},
            {value.key: value.value for value in one.values},
        )
        for one in response.entries
    ]


async def set_quotas(client: Client, entity: Mapping[str, str | None], **quotas: float | None) -> None:
    response = await client.call(altering(entry(entity, quotas)), 1)
    assert [one.error_code for one in response.entries] == [0], response


@case(AlterClientQuotasRequest)
async def alters_quotas(world: World, version: int) -> None:
    requested = altering(
        entry({"user": "ann", "client-id": None}, {"producer_byte_rate": 1000.0, "request_percentage": 0.5}),
        entry({"user": "bob"}, {"connection_creation_rate": 1.0}),
    )
    response = await world.client.call(requested, version)
    assert response.throttle_time_ms == 0
    fine, bad = response.entries
    assert (fine.error_code, fine.error_message) == (0, None)
    assert [(part.entity_type, part.entity_name) for part in fine.entity] == [("client-id", None), ("user", "ann")]
    assert (bad.error_code, bad.error_message) == (42, "Invalid configuration key connection_creation_rate")
    quotas = world.broker.state.quotas.stored.describe([], strict=False)
    assert quotas == [((("client-id", None), ("user", "ann")), {"request_percentage": 0.5, "producer_byte_rate": 1000})]


@case(DescribeClientQuotasRequest)
async def describes_quotas(world: World, version: int) -> None:
    await set_quotas(world.client, {"ip": "10.0.0.1"}, connection_creation_rate=5.0)
    response = await world.client.call(describing(("ip", EXACT, "10.0.0.1")), version)
    assert response.throttle_time_ms == 0 and response.error_message == ""
    assert described(response) == [({"ip": "10.0.0.1"}, {"connection_creation_rate": 5.0})]
    refused = await world.client.call(describing(("group", ANY, None)), version)
    assert (refused.error_code, refused.error_message, refused.entries) == (35, "Unsupported entity type group", None)
