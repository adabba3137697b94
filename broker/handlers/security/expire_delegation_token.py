"""ExpireDelegationToken v0-v2: refused, see `security/tokens.py` (KIP-48)."""

from __future__ import annotations

from ....protocol.messages.security.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from ...context import RequestContext, handles
from ...security.tokens import NO_TIME, REFUSAL


@handles(ExpireDelegationTokenRequest)
async def expire_delegation_token(
    request: ExpireDelegationTokenRequest, context: RequestContext
) -> ExpireDelegationTokenResponse:
    """Refuses the request without looking for the token."""
    return ExpireDelegationTokenResponse(error_code=REFUSAL, expiry_timestamp_ms=NO_TIME, throttle_time_ms=0)
