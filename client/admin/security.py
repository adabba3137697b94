"""Calls of `Admin` on security: access control lists (KIP-140, KIP-290), SCRAM credentials (KIP-554), and delegation
tokens (KIP-48, KIP-373).

Owns the hashing of passwords (RFC 5802): the salted password is sent, the password itself is not. Brokers refuse the
calls on tokens on a connection without a login, and on one that has logged in with a token.
"""

from __future__ import annotations

import asyncio
import base64
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, TypeVar

from ...protocol.acls import AclOperation, PatternType, PermissionType
from ...protocol.acls import ResourceType as AclResourceType
from ...protocol.limits import INT32_MAX
from ...protocol.messages.security.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from ...protocol.messages.security.create_acls import CreateAclsRequest
from ...protocol.messages.security.create_delegation_token import CreateDelegationTokenRequest
from ...protocol.messages.security.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from ...protocol.messages.security.describe_acls import DescribeAclsRequest
from ...protocol.messages.security.describe_delegation_token import DescribeDelegationTokenRequest
from ...protocol.messages.security.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from ...protocol.messages.security.expire_delegation_token import ExpireDelegationTokenRequest
from ...protocol.messages.security.renew_delegation_token import RenewDelegationTokenRequest
from ...protocol.security.scram import salted_password
from ..net.connection import Connection
from ..net.errors import ClientError, ConfigError, UnsupportedVersion
from .calls import Caller, Results, failure, requested
from .types import AclBinding, AclFilter, ScramCredential, ScramDeletion, ScramMechanism, ScramUpsertion

PATTERNS = 1  # the first version with pattern types; before, all patterns are literal
HASHES = {ScramMechanism.SCRAM_SHA_256: "sha256", ScramMechanism.SCRAM_SHA_512: "sha512"}
SALT_BYTES = 32
OWNERS_SINCE = 3
DEFAULT_MS = -1
"""The configured lifetime or period of the broker."""
Credentials = tuple[ScramCredential, ...]
_Code = TypeVar("_Code", bound=IntEnum)


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A token. Principals are "Type:name"; times are in ms since 1970. Before Kafka 3.3 the requester is unknown.

    A client logs in by SCRAM with the id as its name, and the option `tokenauth="true"` of its login module.
    """

    token_id: str
    hmac: bytes = field(repr=False)
    owner: str
    requester: str | None
    renewers: tuple[str, ...]
    issue_ms: int
    expiry_ms: int
    max_ms: int

    @property
    def password(self) -> str:
        """The password of a login: `hmac` in Base64."""
        return base64.b64encode(self.hmac).decode()


class SecurityCalls(Caller):
    """The security calls of `Admin`."""

    # Access control lists

    async def describe_acls(
        self, wanted: AclFilter | None = None, *, timeout_s: float | None = None
    ) -> list[AclBinding]:
        """Returns the matching bindings, by default all, sorted (Kafka 0.11 and later). Raises ClientError."""
        criteria = AclFilter() if wanted is None else wanted

        async def send(connection: Connection) -> list[AclBinding]:
            version = connection.version_of(DescribeAclsRequest)
            response = await requested(connection, DescribeAclsRequest(**_criteria(criteria, version)), version)
            return sorted(_binding(of, result) for of in response.resources for result in of.acls)

        return await self._calls.one(send, timeout_s)

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
            return {one: failure(result) for one, result in zip(left, response.results, strict=False)}

        return await self._calls.at_any(bindings, send, timeout_s)

    async def delete_acls(
        self, filters: Iterable[AclFilter], *, timeout_s: float | None = None
    ) -> dict[AclFilter, list[AclBinding] | ClientError]:
        """Removes the bindings that match a filter, and returns them by filter (Kafka 0.11 and later)."""

        async def send(connection: Connection, left: list[AclFilter]) -> Results[AclFilter, list[AclBinding]]:
            version = connection.version_of(DeleteAclsRequest)
            entries = [DeleteAclsRequest.DeleteAclsFilter(**_criteria(one, version)) for one in left]
            response = await connection.request(DeleteAclsRequest(filters=entries), version)
            return {one: _deleted(result) for one, result in zip(left, response.filter_results, strict=False)}

        return await self._calls.at_any(filters, send, timeout_s)

    # SCRAM credentials

    async def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None, *, timeout_s: float | None = None
    ) -> dict[str, Credentials | ClientError]:
        """Returns the credentials of users, by default of all that have some (Kafka 2.7). Raises ClientError."""
        cls = DescribeUserScramCredentialsRequest
        wanted = None if users is None else [cls.UserName(name=name) for name in dict.fromkeys(users)]

        async def send(connection: Connection) -> dict[str, Credentials | ClientError]:
            response = await requested(connection, cls(users=wanted))
            found: dict[str, Credentials | ClientError] = {}
            for result in response.results:
                stored = sorted(
                    ScramCredential(ScramMechanism(info.mechanism), info.iterations) for info in result.credential_infos
                )
                found[result.user] = failure(result) or tuple(stored)
            return found

        return await self._calls.one(send, timeout_s)

    async def alter_user_scram_credentials(
        self, changes: Iterable[ScramUpsertion | ScramDeletion], *, timeout_s: float | None = None
    ) -> dict[str, ClientError | None]:
        """Stores and deletes credentials; returns the outcome by user (Kafka 2.7 and later).

        Raises ConfigError for an invalid mechanism or number of iterations.
        """
        cls = AlterUserScramCredentialsRequest
        deletions: dict[str, list[AlterUserScramCredentialsRequest.ScramCredentialDeletion]] = {}
        upsertions: dict[str, list[AlterUserScramCredentialsRequest.ScramCredentialUpsertion]] = {}
        for change in changes:
            if isinstance(change, ScramDeletion):
                deletions.setdefault(change.user, []).append(
                    cls.ScramCredentialDeletion(name=change.user, mechanism=change.mechanism)
                )
                continue
            salt = secrets.token_bytes(SALT_BYTES) if change.salt is None else change.salt
            upsertions.setdefault(change.user, []).append(
                cls.ScramCredentialUpsertion(
                    name=change.user,
                    mechanism=change.mechanism,
                    iterations=change.iterations,
                    salt=salt,
                    salted_password=await asyncio.to_thread(salted, change, salt),
                )
            )

        async def send(connection: Connection, left: list[str]) -> dict[str, ClientError | None]:
            request = cls(
                deletions=[one for user in left for one in deletions.get(user, ())],
                upsertions=[one for user in left for one in upsertions.get(user, ())],
            )
            response = await connection.request(request)
            return {result.user: failure(result) for result in response.results}

        return await self._calls.at_controller(dict.fromkeys([*deletions, *upsertions]), send, timeout_s)

    # Delegation tokens

    async def create_delegation_token(
        self,
        renewers: Iterable[str] = (),
        *,
        owner: str | None = None,
        max_lifetime_ms: int = DEFAULT_MS,
        timeout_s: float | None = None,
    ) -> DelegationToken:
        """Issues a token for the client's principal, or for another `owner` (Kafka 3.3); renewers may renew and expire
        it, as the owner may. Raises ClientError, and ConfigError for a malformed principal."""
        cls = CreateDelegationTokenRequest
        others = tuple(renewers)
        wanted = [
            cls.CreatableRenewers(principal_type=kind, principal_name=name) for kind, name in map(_principal, others)
        ]
        owner_type, owner_name = ("", "") if owner is None else _principal(owner)

        async def send(connection: Connection) -> DelegationToken:
            version = connection.version_of(cls)
            if owner is not None and version < OWNERS_SINCE:
                raise UnsupportedVersion(f"the broker's CreateDelegationToken v{version} has no owner")
            request = cls(
                owner_principal_type=owner_type,
                owner_principal_name=owner_name,
                renewers=wanted,
                max_lifetime_ms=max_lifetime_ms,
            )
            response = await requested(connection, request, version)
            times_ms = response.issue_timestamp_ms, response.expiry_timestamp_ms, response.max_timestamp_ms
            return _token(response, version, others, *times_ms)

        return await self._calls.one(send, timeout_s, self._calls.at_controller)

    async def renew_delegation_token(
        self, hmac: bytes, period_ms: int = DEFAULT_MS, *, timeout_s: float | None = None
    ) -> int:
        """Moves the expiry of a token to `period_ms` from now; returns the new one in ms since 1970. Raises
        ClientError."""
        return await self._changed(RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms), timeout_s)

    async def expire_delegation_token(
        self, hmac: bytes, period_ms: int = DEFAULT_MS, *, timeout_s: float | None = None
    ) -> int:
        """Moves the expiry of a token to `period_ms` from now, and with a negative period removes the token; returns
        the new expiry in ms since 1970. Raises ClientError."""
        return await self._changed(ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms), timeout_s)

    async def _changed(self, request: object, timeout_s: float | None) -> int:
        calls = self._calls
        response = await calls.one(lambda connection: requested(connection, request), timeout_s, calls.at_controller)
        return response.expiry_timestamp_ms

    async def describe_delegation_tokens(
        self, owners: Iterable[str] | None = None, *, timeout_s: float | None = None
    ) -> list[DelegationToken]:
        """Returns the tokens that one of the principals owns, has requested or may renew, by default those of all; of
        them, those that the client may see. Raises ClientError."""
        cls = DescribeDelegationTokenRequest
        wanted = None
        if owners is not None:
            make = cls.DescribeDelegationTokenOwner
            names = map(_principal, dict.fromkeys(owners))
            wanted = [make(principal_type=kind, principal_name=name) for kind, name in names]

        async def send(connection: Connection) -> list[DelegationToken]:
            version = connection.version_of(cls)
            response = await requested(connection, cls(owners=wanted), version)
            return [
                _token(
                    one,
                    version,
                    tuple(f"{other.principal_type}:{other.principal_name}" for other in one.renewers),
                    one.issue_timestamp,
                    one.expiry_timestamp,
                    one.max_timestamp,
                )
                for one in response.tokens
            ]

        return await self._calls.one(send, timeout_s)


def _criteria(wanted: AclFilter, version: int) -> dict[str, Any]:
    """Returns the fields of a filter, which both requests have. Raises UnsupportedVersion."""
    return {
        "resource_type_filter": wanted.resource_type,
        "resource_name_filter": wanted.resource_name,
        "pattern_type_filter": _pattern(wanted.pattern_type, version),
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission,
    }


def _pattern(pattern: PatternType, version: int) -> int:
    """Returns a pattern type as the version has it. Raises UnsupportedVersion."""
    if version >= PATTERNS:
        return pattern
    if pattern not in (PatternType.ANY, PatternType.LITERAL):
        raise UnsupportedVersion(f"the broker (before Kafka 2.0) has no pattern type {pattern.name}")
    return PatternType.LITERAL


def _deleted(result: DeleteAclsResponse.DeleteAclsFilterResult) -> list[AclBinding] | ClientError:
    wrong = failure(result)
    found: list[AclBinding] = []
    for one in result.matching_acls:
        wrong = wrong or failure(one)
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


def salted(wanted: ScramUpsertion, salt: bytes) -> bytes:
    """Returns the SaltedPassword of RFC 5802. Raises ConfigError."""
    name = HASHES.get(wanted.mechanism)
    if name is None:
        raise ConfigError(
            f"mechanism must be one of {', '.join(known.name for known in HASHES)}, not {wanted.mechanism!r}"
        )
    if not 0 < wanted.iterations <= INT32_MAX:
        raise ConfigError(f"iterations must be above 0, not {wanted.iterations}")
    return salted_password(name, wanted.password, salt, wanted.iterations)


def _principal(text: str) -> tuple[str, str]:
    """Returns type and name of a principal. Raises ConfigError."""
    kind, colon, name = text.partition(":")
    if not kind or not colon:
        raise ConfigError(f"expected a string in format principalType:principalName but got {text}")
    return kind, name


def _token(value: Any, version: int, renewers: tuple[str, ...], *times_ms: int) -> DelegationToken:
    """Returns a token in a response, with its times of issue, expiry and end."""
    requester = None
    if version >= OWNERS_SINCE:
        requester = f"{value.token_requester_principal_type}:{value.token_requester_principal_name}"
    owner = f"{value.principal_type}:{value.principal_name}"
    return DelegationToken(value.token_id, bytes(value.hmac), owner, requester, renewers, *times_ms)
