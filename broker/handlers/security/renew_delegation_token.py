"""RenewDelegationToken v0-v2: moves the expiry of a token further away (KIP-48). The owner and the renewers may.

Checks, in this order: the client is authenticated, and not by a token, else DELEGATION_TOKEN_REQUEST_NOT_ALLOWED; a key
is configured, else DELEGATION_TOKEN_AUTH_DISABLED; `metadata.version` has tokens, else UNSUPPORTED_VERSION; the token
exists, else DELEGATION_TOKEN_NOT_FOUND; it has not expired, else DELEGATION_TOKEN_EXPIRED; the principal may renew it,
else DELEGATION_TOKEN_OWNER_MISMATCH. Releases with ZooKeeper check the last two in the other order.
"""

from __future__ import annotations

from ....protocol.errors import ErrorCode
from ....protocol.messages.security.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from ...context import RequestContext, handles
from ...errors import Refused
from ...security.tokens import NO_TIME
from .token_requests import check_connection, check_served


@handles(RenewDelegationTokenRequest)
async def renew_delegation_token(
    request: RenewDelegationTokenRequest, context: RequestContext
) -> RenewDelegationTokenResponse:
    """Returns the new expiry."""
    code, expiry_ms = ErrorCode.NONE, NO_TIME
    tokens = context.broker.tokens
    try:
        check_connection(context)
        expiry_ms = tokens.refused_ms
        check_served(context)
        expiry_ms = tokens.renew(context.principal, bytes(request.hmac), request.renew_period_ms, context.now_ms())
    except Refused as refused:
        code = refused.code
    return RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=expiry_ms, throttle_time_ms=0)
