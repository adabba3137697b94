"""RenewDelegationToken v0-v2: refused, see `security/tokens.py` (KIP-48)."""

from __future__ import annotations

from ....protocol.messages.security.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from ...context import RequestContext, handles
from ...security.tokens import NO_TIME, REFUSAL


@handles(RenewDelegationTokenRequest)
async def renew_delegation_token(
    request: RenewDelegationTokenRequest, context: RequestContext
) -> RenewDelegationTokenResponse:
    """Refuses the request without looking for the token."""
    return RenewDelegationTokenResponse(error_code=REFUSAL, expiry_timestamp_ms=NO_TIME, throttle_time_ms=0)
