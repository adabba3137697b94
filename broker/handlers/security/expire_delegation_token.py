"""ExpireDelegationToken v0-v2: moves the expiry of a token, or removes it (KIP-48). The owner and the renewers may.

Checks, in this order: the client is authenticated, and not by a token, else DELEGATION_TOKEN_REQUEST_NOT_ALLOWED; a key
is configured, else DELEGATION_TOKEN_AUTH_DISABLED; `metadata.version` has tokens, else UNSUPPORTED_VERSION; the token
exists, else DELEGATION_TOKEN_NOT_FOUND; the principal may renew it, else DELEGATION_TOKEN_OWNER_MISMATCH; it has not
expired or is to be removed, else DELEGATION_TOKEN_EXPIRED. Releases before 3.7 do not remove an expired token, and 3.6
compares the owner last (`token_rules`).
"""

from __future__ import annotations

from ....protocol.errors import ErrorCode
from ....protocol.messages.security.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from ...context import RequestContext, handles
from ...errors import Refused
from ...security.tokens import NO_TIME
from .token_requests import check_connection, check_served


@handles(ExpireDelegationTokenRequest)
async def expire_delegation_token(
    request: ExpireDelegationTokenRequest, context: RequestContext
) -> ExpireDelegationTokenResponse:
    """Returns the new expiry: the present time for a token that was removed."""
    code, expiry_ms = ErrorCode.NONE, NO_TIME
    tokens = context.broker.tokens
    try:
        check_connection(context)
        expiry_ms = tokens.refused_ms
        check_served(context)
        period_ms = request.expiry_time_period_ms
        expiry_ms = tokens.expire(context.principal, bytes(request.hmac), period_ms, context.now_ms())
    except Refused as refused:
        code = refused.code
    return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=expiry_ms, throttle_time_ms=0)
