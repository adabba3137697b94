"""Calls of `Admin` on quotas of users, client ids and IPs (KIP-546, KIP-612)."""

from __future__ import annotations

from collections.abc import Mapping

from ...protocol.messages.configs.alter_client_quotas import AlterClientQuotasRequest
from ...protocol.messages.configs.describe_client_quotas import DescribeClientQuotasRequest
from ..net.connection import Connection
from ..net.errors import ClientError
from .calls import Calls, failure, of_one
from .types import QUOTA_ENTITY_TYPES, AnyName, QuotaEntity

EXACT, DEFAULT, ANY = 0, 1, 2


def quota_entity(names: Mapping[str, str | None]) -> QuotaEntity:
    """Returns the entity of names by type, with the types in Kafka's order; unknown types are last."""
    known = [kind for kind in QUOTA_ENTITY_TYPES if kind in names]
    return tuple((kind, names[kind]) for kind in [*known, *sorted(names.keys() - set(known))])


class QuotaCalls:
    """The quota calls of `Admin`."""

    _calls: Calls

    async def describe_client_quotas(
        self,
        wanted: Mapping[str, str | AnyName | None] | None = None,
        *,
        strict: bool = False,
        timeout_s: float | None = None,
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Returns the quotas of matching entities, by default of all (Kafka 2.6 and later).

        `wanted` has a name for each type that an entity must have: None for the default, ANY_NAME for all. With
        `strict` an entity must have no other types. Raises ClientError.
        """
        components = [
            DescribeClientQuotasRequest.ComponentData(
                entity_type=kind,
                match_type=ANY if isinstance(name, AnyName) else DEFAULT if name is None else EXACT,
                match=name if isinstance(name, str) else None,
            )
            for kind, name in (wanted or {}).items()
        ]

        async def send(
            connection: Connection, keys: list[str]
        ) -> dict[str, dict[QuotaEntity, dict[str, float]] | ClientError]:
            response = await connection.request(DescribeClientQuotasRequest(components=components, strict=strict))
            found = {
                quota_entity({of.entity_type: of.entity_name for of in result.entity}): {
                    one.key: one.value for one in result.values
                }
                for result in response.entries or ()
            }
            return dict.fromkeys(keys, failure(response.error_code, response.error_message) or found)

        return of_one(await self._calls.at_any(["quotas"], send, timeout_s))

    async def alter_client_quotas(
        self,
        changes: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
        timeout_s: float | None = None,
    ) -> dict[QuotaEntity, ClientError | None]:
        """Sets quotas of entities, or removes those with the value None (Kafka 2.6 and later)."""
        wanted = {quota_entity(dict(entity)): change for entity, change in changes.items()}
        cls = AlterClientQuotasRequest.EntryData

        async def send(connection: Connection, left: list[QuotaEntity]) -> dict[QuotaEntity, ClientError | None]:
            entries = [
                cls(
                    entity=[cls.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                    ops=[
                        cls.OpData(key=key, value=0.0 if value is None else value, remove=value is None)
                        for key, value in wanted[entity].items()
                    ],
                )
                for entity in left
            ]
            response = await connection.request(AlterClientQuotasRequest(entries=entries, validate_only=validate_only))
            return {
                quota_entity({of.entity_type: of.entity_name for of in result.entity}): failure(
                    result.error_code, result.error_message
                )
                for result in response.entries
            }

        return await self._calls.at_any(wanted, send, timeout_s)
