"""AlterUserScramCredentials: request and response of API key 51. KIP-554."""

from __future__ import annotations

from ...primitives import Bytes, Int8, Int16, Int32, Text
from ...schema import group, message


@message(api_key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsRequest:
    """Removes and sets credentials. The password is never sent, only its salted form, Hi() of RFC 5802."""

    deletions: list[ScramCredentialDeletion]
    upsertions: list[ScramCredentialUpsertion]

    @group
    class ScramCredentialDeletion:
        name: Text
        mechanism: Int8

    @group
    class ScramCredentialUpsertion:
        name: Text
        mechanism: Int8
        iterations: Int32
        salt: Bytes
        salted_password: Bytes


@message(api_key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsResponse:
    """One result per user."""

    throttle_time_ms: Int32
    results: list[AlterUserScramCredentialsResult]

    @group
    class AlterUserScramCredentialsResult:
        user: Text
        error_code: Int16
        error_message: Text | None
