"""ExpireDelegationToken: request and response of API key 40. KIP-48."""

from __future__ import annotations

from ...primitives import Bytes, Int16, Int32, Int64
from ...schema import message


@message(api_key=40, versions="0-2", flexible="2+")
class ExpireDelegationTokenRequest:
    """Sets the expiry of a token, in milliseconds from now; negative to expire it at once."""

    hmac: Bytes
    expiry_time_period_ms: Int64


@message(api_key=40, versions="0-2", flexible="2+")
class ExpireDelegationTokenResponse:
    """The new expiry timestamp."""

    error_code: Int16
    expiry_timestamp_ms: Int64
    throttle_time_ms: Int32
