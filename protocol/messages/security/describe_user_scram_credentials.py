"""DescribeUserScramCredentials: request and response of API key 50. KIP-554."""

from __future__ import annotations

from ...primitives import Int8, Int16, Int32, Text
from ...schema import group, message


@message(api_key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsRequest:
    """Requests the SCRAM credentials of users; null or an empty list for all users."""

    users: list[UserName] | None

    @group
    class UserName:
        name: Text


@message(api_key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsResponse:
    """Mechanisms and iterations of each user, without secrets."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: Text | None
    results: list[DescribeUserScramCredentialsResult]

    @group
    class DescribeUserScramCredentialsResult:
        user: Text
        error_code: Int16
        error_message: Text | None
        credential_infos: list[CredentialInfo]

        @group
        class CredentialInfo:
            mechanism: Int8
            iterations: Int32
