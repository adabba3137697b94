"""RenewDelegationToken: request and response of API key 39. KIP-48."""

from __future__ import annotations

from ...primitives import Bytes, Int16, Int32, Int64
from ...schema import message


@message(api_key=39, versions="0-2", flexible="2+")
class RenewDelegationTokenRequest:
    """Extends the lifetime of a token."""

    hmac: Bytes
    renew_period_ms: Int64


@message(api_key=39, versions="0-2", flexible="2+")
class RenewDelegationTokenResponse:
    """The new expiry timestamp."""

    error_code: Int16
    expiry_timestamp_ms: Int64
    throttle_time_ms: Int32
