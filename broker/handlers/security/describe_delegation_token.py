"""DescribeDelegationToken v0-v3: the tokens of owners, with their secrets (KIP-48). v3 has the requesters (KIP-373).

Checks: the client is authenticated, and not by a token, else DELEGATION_TOKEN_REQUEST_NOT_ALLOWED; a key is configured,
else DELEGATION_TOKEN_AUTH_DISABLED. A token is described to its owner, requester and renewers, and to principals with
DESCRIBE on the token or DESCRIBE_TOKENS on its owner; others are left out.
"""

from __future__ import annotations

from collections.abc import Collection

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.messages.security.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from ...context import RequestContext, handles
from ...errors import Refused
from ...security.tokens import DelegationToken
from .token_requests import check_connection

Described = DescribeDelegationTokenResponse.DescribedDelegationToken
Renewer = Described.DescribedDelegationTokenRenewer
REQUESTER_SINCE = 3


@handles(DescribeDelegationTokenRequest)
async def describe_delegation_token(
    request: DescribeDelegationTokenRequest, context: RequestContext
) -> DescribeDelegationTokenResponse:
    """Returns the tokens that one of the requested principals owns, has requested or may renew, or all for null."""
    tokens = context.broker.tokens
    try:
        check_connection(context)
        if not tokens.is_enabled:
            raise Refused(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    except Refused as refused:
        return DescribeDelegationTokenResponse(error_code=refused.code, tokens=[], throttle_time_ms=0)
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
