"""SaslAuthenticate: request and response of API key 36. KIP-152, KIP-368."""

from __future__ import annotations

from ...primitives import Bytes, Int16, Int64, Text
from ...schema import field, message


@message(api_key=36, versions="0-2", flexible="2+")
class SaslAuthenticateRequest:
    """A token of the client."""

    auth_bytes: Bytes


@message(api_key=36, versions="0-2", flexible="2+")
class SaslAuthenticateResponse:
    """A token of the broker. v1 adds the lifetime of the session in ms, 0 without a limit (KIP-368)."""

    error_code: Int16
    error_message: Text | None
    auth_bytes: Bytes
    session_lifetime_ms: Int64 = field("1+", default=0, ignorable=True)
