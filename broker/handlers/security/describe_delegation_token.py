"""DescribeDelegationToken v0-v3: refused, see `security/tokens.py` (KIP-48, KIP-373)."""

from __future__ import annotations

from ....protocol.messages.security.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from ...context import RequestContext, handles
from ...security.tokens import REFUSAL


@handles(DescribeDelegationTokenRequest)
async def describe_delegation_token(
    request: DescribeDelegationTokenRequest, context: RequestContext
) -> DescribeDelegationTokenResponse:
    """Refuses the request: tokens need an authenticated connection."""
    return DescribeDelegationTokenResponse(error_code=REFUSAL, tokens=[], throttle_time_ms=0)
