"""DescribeUserScramCredentials: request and response of API key 50. KIP-554."""

from __future__ import annotations

from ...primitives import Int8, Int16, Int32, Text
from ...schema import group, message


@message(api_key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsRequest:
    """Asks which SCRAM credentials users have; null, or no user, asks of all."""

    users: list[UserName] | None

    @group
    class UserName:
        name: Text


@message(api_key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsResponse:
    """Each user's mechanisms and iterations, nothing that is secret."""

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
