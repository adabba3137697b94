"""SaslHandshake: request and response of API key 17. KIP-43, KIP-152."""

from __future__ import annotations

from ...primitives import Int16, Text
from ...schema import message


@message(api_key=17, versions="0-1")
class SaslHandshakeRequest:
    """Chooses a SASL mechanism. After v0 the tokens follow without a header, after v1 in SaslAuthenticate."""

    mechanism: Text


@message(api_key=17, versions="0-1")
class SaslHandshakeResponse:
    """The mechanisms of the listener."""

    error_code: Int16
    mechanisms: list[Text]
