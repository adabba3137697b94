"""CreateDelegationToken: request and response of API key 38. KIP-48, KIP-373 (v3: on behalf of an owner)."""

from __future__ import annotations

from ...primitives import Bytes, Int16, Int32, Int64, Text
from ...schema import field, group, message


@message(api_key=38, versions="0-3", flexible="2+")
class CreateDelegationTokenRequest:
    """Requests a token with which other clients authenticate as its owner; a maximum lifetime of -1 is the broker's
    default."""

    owner_principal_type: Text | None = field("3+", default="")
    owner_principal_name: Text | None = field("3+", default="")
    renewers: list[CreatableRenewers]
    max_lifetime_ms: Int64

    @group
    class CreatableRenewers:
        principal_type: Text
        principal_name: Text


@message(api_key=38, versions="0-3", flexible="2+")
class CreateDelegationTokenResponse:
    """The token and its secret."""

    error_code: Int16
    principal_type: Text
    principal_name: Text
    token_requester_principal_type: Text = field("3+", default="")
    token_requester_principal_name: Text = field("3+", default="")
    issue_timestamp_ms: Int64
    expiry_timestamp_ms: Int64
    max_timestamp_ms: Int64
    token_id: Text
    hmac: Bytes
    throttle_time_ms: Int32
