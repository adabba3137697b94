"""Calls of `Admin` on access control lists: describe, create, delete (KIP-140, KIP-290)."""

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

PATTERNS = 1  # the first version with pattern types; before, all patterns are literal
_Code = TypeVar("_Code", bound=IntEnum)


class AclCalls:
    """The ACL calls of `Admin`."""

    _calls: Calls

    async def describe_acls(
        self, wanted: AclFilter | None = None, *, timeout_s: float | None = None
    ) -> list[AclBinding]:
        """Returns the matching bindings, by default all, sorted (Kafka 0.11 and later). Raises ClientError."""
        criteria = AclFilter() if wanted is None else wanted

        async def send(connection: Connection, keys: list[str]) -> dict[str, list[AclBinding] | ClientError]:
            version = connection.version_of(DescribeAclsRequest)
            request = DescribeAclsRequest(
                resource_type_filter=criteria.resource_type,
                resource_name_filter=criteria.resource_name,
                pattern_type_filter=_pattern(criteria.pattern_type, version),
                principal_filter=criteria.principal,
                host_filter=criteria.host,
                operation=criteria.operation,
                permission_type=criteria.permission,
            )
            response = await connection.request(request, version)
            found = sorted(_binding(of, result) for of in response.resources for result in of.acls)
            return dict.fromkeys(keys, failure(response.error_code, response.error_message) or found)

        return of_one(await self._calls.at_any(["acls"], send, timeout_s))

    async def create_acls(
        self, bindings: Iterable[AclBinding], *, timeout_s: float | None = None
    ) -> dict[AclBinding, ClientError | None]:
        """Adds bindings (Kafka 0.11 and later). A binding that exists is not an error."""

        async def send(connection: Connection, left: list[AclBinding]) -> dict[AclBinding, ClientError | None]:
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
                one: failure(result.error_code, result.error_message)
                for one, result in zip(left, response.results, strict=False)
            }

        return await self._calls.at_any(bindings, send, timeout_s)

    async def delete_acls(
        self, filters: Iterable[AclFilter], *, timeout_s: float | None = None
    ) -> dict[AclFilter, list[AclBinding] | ClientError]:
        """Removes the bindings that match a filter, and returns them by filter (Kafka 0.11 and later)."""

        async def send(
            connection: Connection, left: list[AclFilter]
        ) -> dict[AclFilter, list[AclBinding] | ClientError]:
            version = connection.version_of(DeleteAclsRequest)
            entries = [
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
            response = await connection.request(DeleteAclsRequest(filters=entries), version)
            return {one: _deleted(result) for one, result in zip(left, response.filter_results, strict=False)}

        return await self._calls.at_any(filters, send, timeout_s)


def _pattern(pattern: PatternType, version: int) -> int:
    """Returns a pattern type as the version has it. Raises UnsupportedVersion."""
    if version >= PATTERNS:
        return pattern
    if pattern not in (PatternType.ANY, PatternType.LITERAL):
        raise UnsupportedVersion(f"the broker (before Kafka 2.0) has no pattern type {pattern.name}")
    return PatternType.LITERAL


def _deleted(result: DeleteAclsResponse.DeleteAclsFilterResult) -> list[AclBinding] | ClientError:
    wrong = failure(result.error_code, result.error_message)
    found: list[AclBinding] = []
    for one in result.matching_acls:
        wrong = wrong or failure(one.error_code, one.error_message)
        found.append(_binding(one, one))
    return wrong or sorted(found)


def _binding(of: Any, result: Any) -> AclBinding:
    return AclBinding(
        _code(AclResourceType, of.resource_type),
        of.resource_name,
        _code(PatternType, of.pattern_type),
        result.principal,
        result.host,
        _code(AclOperation, result.operation),
        _code(PermissionType, result.permission_type),
    )


def _code(kind: type[_Code], number: int) -> _Code:
    """Returns a code by its number; UNKNOWN for one that is newer than this client."""
    try:
        return kind(number)
    except ValueError:
        return kind(0)
