"""CreateDelegationToken v0-v3: refused, see `security/tokens.py` (KIP-48, KIP-373)."""

from __future__ import annotations

from ....protocol.errors import ErrorCode
from ....protocol.messages.security.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from ...context import RequestContext, handles
from ...security.tokens import NO_TIME, REFUSAL

REQUESTER_SINCE = 3


@handles(CreateDelegationTokenRequest)
async def create_delegation_token(
    request: CreateDelegationTokenRequest, context: RequestContext
) -> CreateDelegationTokenResponse:
    """Refuses the request. The response names the owner that the token would have had: the requested one, else the
    principal.
    """
    kind, _, name = context.principal.partition(":")
    response = CreateDelegationTokenResponse(
        error_code=REFUSAL,
        principal_type=kind,
        principal_name=name,
        issue_timestamp_ms=NO_TIME,
        expiry_timestamp_ms=NO_TIME,
        max_timestamp_ms=NO_TIME,
        token_id="",
        hmac=b"",
        throttle_time_ms=0,
    )
    if request.owner_principal_name and request.owner_principal_type is None:
        response.error_code = ErrorCode.INVALID_PRINCIPAL_TYPE  # Kafka fails with an unexpected error, -1
    elif request.owner_principal_name:
        response.principal_type, response.principal_name = (
            request.owner_principal_type or "",
            request.owner_principal_name,
        )
    if context.api_version >= REQUESTER_SINCE:
        response.token_requester_principal_type, response.token_requester_principal_name = kind, name
    return response
