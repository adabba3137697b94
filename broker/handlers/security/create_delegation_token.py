"""CreateDelegationToken v0-v3: issues a token (KIP-48). v3 names another owner, and the requester (KIP-373).

Checks, in this order: the client is authenticated, and not by a token, else DELEGATION_TOKEN_REQUEST_NOT_ALLOWED; for
another owner CREATE_TOKENS on that user, else DELEGATION_TOKEN_AUTHORIZATION_FAILED; renewers are users, else
INVALID_PRINCIPAL_TYPE; a key is configured, else DELEGATION_TOKEN_AUTH_DISABLED; `metadata.version` has tokens, else
UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.messages.security.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from ...context import RequestContext, handles
from ...errors import Refused
from ...security.authorizer import USER_TYPE
from ...security.tokens import NO_TIME
from .token_requests import check_connection, check_served

REQUESTER_SINCE = 3


@handles(CreateDelegationTokenRequest)
async def create_delegation_token(
    request: CreateDelegationTokenRequest, context: RequestContext
) -> CreateDelegationTokenResponse:
    """Returns the token with its secret. A refusal names the owner that the token would have had."""
    kind, _, name = context.principal.partition(":")
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
    try:
        _check(request, response, context)
    except Refused as refused:
        response.error_code = refused.code
        return response
    try:
        check_served(context)
    except Refused as refused:
        response.error_code = refused.code
        refused_ms = context.broker.tokens.refused_ms
        response.issue_timestamp_ms = response.expiry_timestamp_ms = response.max_timestamp_ms = refused_ms
        return response
    renewers = await context.mapped(lambda one: f"{one.principal_type}:{one.principal_name}", request.renewers)
    owner = f"{response.principal_type}:{response.principal_name}"
    tokens = context.broker.tokens
    token = tokens.create(owner, context.principal, renewers, request.max_lifetime_ms, context.now_ms())
    response.issue_timestamp_ms, response.expiry_timestamp_ms = token.issue_ms, token.expiry_ms
    response.max_timestamp_ms = token.max_ms
    response.token_id, response.hmac = token.token_id, tokens.secret_of(token.token_id)
    return response


def _check(
    request: CreateDelegationTokenRequest, response: CreateDelegationTokenResponse, context: RequestContext
) -> None:
    check_connection(context)
    owner = f"{response.principal_type}:{response.principal_name}"
    if owner != context.principal and not context.allowed(AclOperation.CREATE_TOKENS, ResourceType.USER, owner):
        raise Refused(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
    if any(renewer.principal_type != USER_TYPE for renewer in request.renewers):
        raise Refused(ErrorCode.INVALID_PRINCIPAL_TYPE)
