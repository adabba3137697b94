"""Delegation tokens (KIP-48): CreateDelegationToken v0-v3, DescribeDelegationToken v0-v3, RenewDelegationToken v0-v2
and ExpireDelegationToken v0-v2. v3 has the requester of a token, and tokens for another owner (KIP-373).

All check first that the client is authenticated, and not by a token, else DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, then
that a key is configured, else DELEGATION_TOKEN_AUTH_DISABLED, and all but DescribeDelegationToken that
`metadata.version` has tokens, else UNSUPPORTED_VERSION. CreateDelegationToken checks before the key: for another owner
CREATE_TOKENS on that user, else DELEGATION_TOKEN_AUTHORIZATION_FAILED; renewers are users, else INVALID_PRINCIPAL_TYPE.

A token is described to its owner, requester and renewers, and to principals with DESCRIBE on the token or
DESCRIBE_TOKENS on its owner; others are left out. The owner and the renewers may move its expiry. Checks: the token
exists, else DELEGATION_TOKEN_NOT_FOUND. Then, for a renewal, it has not expired, else DELEGATION_TOKEN_EXPIRED, and the
principal may renew it, else DELEGATION_TOKEN_OWNER_MISMATCH; releases with ZooKeeper check these two in the other
order. For an expiry, the principal may renew it, and it has not expired or is to be removed; releases before 3.7 do not
remove an expired token, and 3.6 compares the owner last (`token_rules`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.messages.security.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from ....protocol.messages.security.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from ....protocol.messages.security.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from ....protocol.messages.security.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from ...context import RequestContext, handles
from ...errors import Refused
from ...security.authorizer import ANONYMOUS, USER_TYPE
from ...security.tokens import NO_TIME, DelegationToken

REQUESTER_SINCE = 3
Described = DescribeDelegationTokenResponse.DescribedDelegationToken
Renewer = Described.DescribedDelegationTokenRenewer


def _check_connection(context: RequestContext) -> None:
    """Raises Refused for a client that is not authenticated, or is by a delegation token: one token must not lead to
    another."""
    info = context.connection_info
    if info.token_authenticated or (info.sasl is None and info.principal == ANONYMOUS):
        raise Refused(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def _check_enabled(context: RequestContext) -> None:
    if not context.broker.tokens.is_enabled:
        raise Refused(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)


def _check_served(context: RequestContext) -> None:
    """Raises Refused if tokens are disabled, or `metadata.version` has no records of them."""
    _check_enabled(context)
    if not context.broker.features.stores_tokens:
        raise Refused(ErrorCode.UNSUPPORTED_VERSION)


@handles(CreateDelegationTokenRequest)
async def create_delegation_token(
    request: CreateDelegationTokenRequest, context: RequestContext
) -> CreateDelegationTokenResponse:
    """Returns the token with its secret. A refusal names the owner that the token would have had."""
    kind, name = _parts(context.principal)
    response = CreateDelegationTokenResponse(
        error_code=ErrorCode.NONE,
        principal_type=kind,
        principal_name=name,
        issue_timestamp_ms=NO_TIME,
        expiry_timestamp_ms=NO_TIME,
        max_timestamp_ms=NO_TIME,
        token_id="",
        hmac=b"",
        throttle_time_ms=0,
    )
    if context.api_version >= REQUESTER_SINCE:
        response.token_requester_principal_type, response.token_requester_principal_name = kind, name
    if request.owner_principal_name:
        if request.owner_principal_type is None:
            response.error_code = ErrorCode.INVALID_PRINCIPAL_TYPE  # Kafka fails with an unexpected error, -1
            return response
        response.principal_type, response.principal_name = request.owner_principal_type, request.owner_principal_name
    tokens = context.broker.tokens
    try:
        _check(request, response, context)
        response.issue_timestamp_ms = response.expiry_timestamp_ms = response.max_timestamp_ms = tokens.refused_ms
        _check_served(context)
    except Refused as refused:
        response.error_code = refused.code
        return response
    renewers = await context.mapped(lambda one: f"{one.principal_type}:{one.principal_name}", request.renewers)
    owner = f"{response.principal_type}:{response.principal_name}"
    token = tokens.create(owner, context.principal, renewers, request.max_lifetime_ms, context.now_ms())
    response.issue_timestamp_ms, response.expiry_timestamp_ms = token.issue_ms, token.expiry_ms
    response.max_timestamp_ms = token.max_ms
    response.token_id, response.hmac = token.token_id, tokens.secret_of(token.token_id)
    return response


def _check(
    request: CreateDelegationTokenRequest, response: CreateDelegationTokenResponse, context: RequestContext
) -> None:
    _check_connection(context)
    owner = f"{response.principal_type}:{response.principal_name}"
    if owner != context.principal and not context.allowed(AclOperation.CREATE_TOKENS, ResourceType.USER, owner):
        raise Refused(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
    if any(renewer.principal_type != USER_TYPE for renewer in request.renewers):
        raise Refused(ErrorCode.INVALID_PRINCIPAL_TYPE)


@handles(DescribeDelegationTokenRequest)
async def describe_delegation_token(
    request: DescribeDelegationTokenRequest, context: RequestContext
) -> DescribeDelegationTokenResponse:
    """Returns the tokens that one of the requested principals owns, has requested or may renew, or all for null."""
    tokens = context.broker.tokens
    _check_connection(context)
    _check_enabled(context)
    owners: Collection[str] | None = None
    if request.owners is not None:
        owners = set(await context.mapped(lambda one: f"{one.principal_type}:{one.principal_name}", request.owners))
    found = await context.mapped(lambda token: _described(token, owners, context), tokens.all)
    return DescribeDelegationTokenResponse(
        error_code=ErrorCode.NONE, tokens=[one for one in found if one is not None], throttle_time_ms=0
    )


def _described(token: DelegationToken, owners: Collection[str] | None, context: RequestContext) -> Described | None:
    if owners is not None and not any(principal in owners for principal in token.principals):
        return None
    if context.principal not in token.principals and not _is_allowed(token, context):
        return None
    kind, name = _parts(token.owner)
    described = Described(
        principal_type=kind,
        principal_name=name,
        issue_timestamp=token.issue_ms,
        expiry_timestamp=token.expiry_ms,
        max_timestamp=token.max_ms,
        token_id=token.token_id,
        hmac=context.broker.tokens.secret_of(token.token_id),
        renewers=[_renewer(renewer) for renewer in token.renewers],
    )
    if context.api_version >= REQUESTER_SINCE:
        requester = _parts(token.requester)
        described.token_requester_principal_type, described.token_requester_principal_name = requester
    return described


def _is_allowed(token: DelegationToken, context: RequestContext) -> bool:
    if context.allowed(AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id):
        return True
    if context.broker.profile.behaviour.newest_acl_operation < AclOperation.DESCRIBE_TOKENS:
        return False
    return context.allowed(AclOperation.DESCRIBE_TOKENS, ResourceType.USER, token.owner)


def _renewer(principal: str) -> Renewer:
    kind, name = _parts(principal)
    return Renewer(principal_type=kind, principal_name=name)


def _parts(principal: str) -> tuple[str, str]:
    kind, _, name = principal.partition(":")
    return kind, name


@handles(RenewDelegationTokenRequest)
async def renew_delegation_token(
    request: RenewDelegationTokenRequest, context: RequestContext
) -> RenewDelegationTokenResponse:
    """Returns the new expiry."""
    code, expiry_ms = _moved(context.broker.tokens.renew, request.hmac, request.renew_period_ms, context)
    return RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=expiry_ms, throttle_time_ms=0)


@handles(ExpireDelegationTokenRequest)
async def expire_delegation_token(
    request: ExpireDelegationTokenRequest, context: RequestContext
) -> ExpireDelegationTokenResponse:
    """Returns the new expiry: the present time for a token that was removed."""
    code, expiry_ms = _moved(context.broker.tokens.expire, request.hmac, request.expiry_time_period_ms, context)
    return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=expiry_ms, throttle_time_ms=0)


def _moved(
    move: Callable[[str, bytes, int, int], int], secret: bytes, period_ms: int, context: RequestContext
) -> tuple[ErrorCode, int]:
    """Moves the expiry of a token. Returns the error code, and the expiry for the response."""
    expiry_ms = NO_TIME
    try:
        _check_connection(context)
        expiry_ms = context.broker.tokens.refused_ms
        _check_served(context)
        return ErrorCode.NONE, move(context.principal, bytes(secret), period_ms, context.now_ms())
    except Refused as refused:
        return refused.code, expiry_ms
