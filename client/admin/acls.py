"""The admin's calls about access control lists: described, added, removed (KIP-140, KIP-290)."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Any, TypeVar

from ...protocol.acls import AclOperation, PatternType, PermissionType
from ...protocol.acls import ResourceType as AclResourceType
from ...protocol.messages.security.create_acls import CreateAclsRequest
from ...protocol.messages.security.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from ...protocol.messages.security.describe_acls import DescribeAclsRequest
from ..net.connection import Connection
from ..net.errors import ClientError, UnsupportedVersion
from .calls import Calls, failure, of_one
from .types import AclBinding, AclFilter

PATTERNS = 1  # the version that has patterns; before, a name is the name alone
_Code = TypeVar("_Code", bound=IntEnum)


class AclCalls:
    """A part of `Admin`."""

    _calls: Calls

    async def describe_acls(
        self, wanted: AclFilter | None = None, *, timeout_s: float | None = None
    ) -> list[AclBinding]:
        """The bindings that match, all by default, in order (Kafka 0.11 and later). Raises ClientError."""
        asked = AclFilter() if wanted is None else wanted

        async def ask(connection: Connection, keys: list[str]) -> dict[str, list[AclBinding] | ClientError]:
            version = connection.version_of(DescribeAclsRequest)
            request = DescribeAclsRequest(
                resource_type_filter=asked.resource_type,
                resource_name_filter=asked.resource_name,
                pattern_type_filter=_pattern(asked.pattern_type, version),
                principal_filter=asked.principal,
                host_filter=asked.host,
                operation=asked.operation,
                permission_type=asked.permission,
            )
            response = await connection.request(request, version)
            found = sorted(_binding(of, told) for of in response.resources for told in of.acls)
            return dict.fromkeys(keys, failure(response.error_code, response.error_message) or found)

        return of_one(await self._calls.at_any(["acls"], ask, timeout_s))

    async def create_acls(
        self, bindings: Iterable[AclBinding], *, timeout_s: float | None = None
    ) -> dict[AclBinding, ClientError | None]:
        """Adds bindings (Kafka 0.11 and later); one that is there already is no error."""

        async def ask(connection: Connection, left: list[AclBinding]) -> dict[AclBinding, ClientError | None]:
            version = connection.version_of(CreateAclsRequest)
            creations = [
                CreateAclsRequest.AclCreation(
                    resource_type=one.resource_type,
                    resource_name=one.resource_name,
                    resource_pattern_type=_pattern(one.pattern_type, version),
                    principal=one.principal,
                    host=one.host,
                    operation=one.operation,
                    permission_type=one.permission,
                )
                for one in left
            ]
            response = await connection.request(CreateAclsRequest(creations=creations), version)
            return {
                one: failure(told.error_code, told.error_message)
                for one, told in zip(left, response.results, strict=False)
            }

        return await self._calls.at_any(bindings, ask, timeout_s)

    async def delete_acls(
        self, filters: Iterable[AclFilter], *, timeout_s: float | None = None
    ) -> dict[AclFilter, list[AclBinding] | ClientError]:
        """Removes the bindings that match any filter; those that went by each (Kafka 0.11 and later)."""

        async def ask(connection: Connection, left: list[AclFilter]) -> dict[AclFilter, list[AclBinding] | ClientError]:
            version = connection.version_of(DeleteAclsRequest)
            asked = [
                DeleteAclsRequest.DeleteAclsFilter(
                    resource_type_filter=one.resource_type,
                    resource_name_filter=one.resource_name,
                    pattern_type_filter=_pattern(one.pattern_type, version),
                    principal_filter=one.principal,
                    host_filter=one.host,
                    operation=one.operation,
                    permission_type=one.permission,
                )
                for one in left
            ]
            response = await connection.request(DeleteAclsRequest(filters=asked), version)
            return {one: _deleted(told) for one, told in zip(left, response.filter_results, strict=False)}

        return await self._calls.at_any(filters, ask, timeout_s)


def _pattern(pattern: PatternType, version: int) -> int:
    """A pattern as the version says it. Raises UnsupportedVersion."""
    if version >= PATTERNS:
        return pattern
    if pattern not in (PatternType.ANY, PatternType.LITERAL):
        raise UnsupportedVersion(f"the broker knows no patterns of type {pattern.name}: it is older than 2.0")
    return PatternType.LITERAL


def _deleted(told: DeleteAclsResponse.DeleteAclsFilterResult) -> list[AclBinding] | ClientError:
    wrong = failure(told.error_code, told.error_message)
    found: list[AclBinding] = []
    for one in told.matching_acls:
        wrong = wrong or failure(one.error_code, one.error_message)
        found.append(_binding(one, one))
    return wrong or sorted(found)


def _binding(of: Any, told: Any) -> AclBinding:
    return AclBinding(
        _code(AclResourceType, of.resource_type),
        of.resource_name,
        _code(PatternType, of.pattern_type),
        told.principal,
        told.host,
        _code(AclOperation, told.operation),
        _code(PermissionType, told.permission_type),
    )


def _code(kind: type[_Code], number: int) -> _Code:
    """A code by its number; UNKNOWN for one that is newer than this client."""
    try:
        return kind(number)
    except ValueError:
        return kind(0)
