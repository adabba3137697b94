"""DescribeDelegationToken: request and response of API key 41. KIP-48, KIP-373 (v3: the requester of a token)."""

from __future__ import annotations

from ...primitives import Bytes, Int16, Int32, Int64, Text
from ...schema import field, group, message


@message(api_key=41, versions="0-3", flexible="2+")
class DescribeDelegationTokenRequest:
    """Requests the tokens of these owners; null for all owners."""

    owners: list[DescribeDelegationTokenOwner] | None

    @group
    class DescribeDelegationTokenOwner:
        principal_type: Text
        principal_name: Text


@message(api_key=41, versions="0-3", flexible="2+")
class DescribeDelegationTokenResponse:
    """The tokens, with their secrets."""

    error_code: Int16
    tokens: list[DescribedDelegationToken]
    throttle_time_ms: Int32

    @group
    class DescribedDelegationToken:
        principal_type: Text
        principal_name: Text
        token_requester_principal_type: Text = field("3+", default="")
        token_requester_principal_name: Text = field("3+", default="")
        issue_timestamp: Int64
        expiry_timestamp: Int64
        max_timestamp: Int64
        token_id: Text
        hmac: Bytes
        renewers: list[DescribedDelegationTokenRenewer]

        @group
        class DescribedDelegationTokenRenewer:
            principal_type: Text
            principal_name: Text
